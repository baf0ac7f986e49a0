//! Generates the plumbing of both services; their messages are plain Rust, in `src/messages.rs`, `src/capacity.rs`
//! and `src/authorities.rs`.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let session = Method::builder()
        .name("session")
        .route_name("Session")
        .input_type("crate::messages::FromCoordinator")
        .output_type("crate::messages::FromMeasurer")
        .codec_path("tonic_prost::ProstCodec")
        .client_streaming()
        .server_streaming()
        .build();
    let capacity = Method::builder()
        .name("capacity")
        .route_name("Capacity")
        .input_type("crate::capacity::CapacityOrder")
        .output_type("crate::capacity::CapacityAnswer")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let service = Service::builder()
        .name("Measurer")
        .package("flashflow.control.v1")
        .method(session)
        .method(capacity)
        .build();
    let exchange = Method::builder()
        .name("exchange")
        .route_name("Exchange")
        .input_type("crate::authorities::Words")
        .output_type("crate::authorities::Words")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let authority = Service::builder()
        .name("Authority")
        .package("flashflow.control.v1")
        .method(exchange)
        .build();
    Builder::new().compile(&[service, authority]);
    println!("cargo::rerun-if-changed=build.rs");
}
