"""What the service hands out beside its API: pages and pictures for people, addresses that take pushes."""
