//! A TLS pump over loopback with nothing in it.
