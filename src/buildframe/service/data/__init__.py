"""Where everything is kept, and how records are written for answers."""
