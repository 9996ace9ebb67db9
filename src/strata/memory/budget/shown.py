"""Numbers for people."""


def shown_bytes(count: int) -> str:
    """Bytes as people read them, with three digits; 1 GB is 10**9 bytes."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            value = count / unit
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {name}"
    return f"{count} B"


def shown_tokens(count: int) -> str:
    """Tokens as a flag takes them: 131072 is 128K."""
    return f"{count >> 10}K" if count >= 1024 and count % 1024 == 0 else str(count)
