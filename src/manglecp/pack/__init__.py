"""A domain pack on disk. So far: its fact files."""
