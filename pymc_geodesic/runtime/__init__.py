"""What compiled code stands on: decorator, random streams, callbacks from C, threads, memory."""
