"""Thin ways to a server that send any bytes, keep every byte that comes back, and forgive nothing."""
