"""The other side of the contract, as the C++ toolhost and its client behave; for tests of ours."""
