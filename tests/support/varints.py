"""Numbers as record batches hold them."""


def varint(number: int) -> bytes:
    """Zigzag, then seven bits at a time."""
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
