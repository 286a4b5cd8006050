"""Web pages, images, and the addresses that receive pushes."""
