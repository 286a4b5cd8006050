"""Send requests and read responses: client, retries, rate limits, protocol. The only package that imports httpx."""
