"""Being called: by the channel, or on a port of one's own."""
