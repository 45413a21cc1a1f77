"""The control loop: requests are taken off the sockets, decoded, and answered under one lock."""
