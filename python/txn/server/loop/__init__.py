"""The control loop: it gets requests from the sockets, decodes and answers them under one lock."""
