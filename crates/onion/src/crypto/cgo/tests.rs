mod layers;
mod vectors;
