//! Private networks of C tor that `flashflow-lab` starts, and what is left of them.
//!
//! Each run has a separate folder for temporary files, so that leftovers are found.

mod demo;
mod lab;
