//! Properties of cell models that the engine relies on, for both models.

mod cells;
mod data;
mod handshakes;
mod layers;
