"""Turn paginated lists of the service into frames: pagination, workers, decoding, ordering."""
