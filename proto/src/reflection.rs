//! gRPC reflection: what a process tells of the services that it serves.

use crate::FILE_DESCRIPTOR_SET;
use tonic_reflection::server::{Builder, Error, v1, v1alpha};

/// What every process serves beside its own services.
const HEALTH: &str = "grpc.health.v1.Health";

fn builder(names: &'static [&'static str]) -> Builder<'static> {
    let builder = Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(HEALTH);
    // The descriptors hold the services of every process.
    names.iter().fold(builder, |builder, name| builder.with_service_name(*name))
}

/// Version 1 of the service of reflection. It lists `names` (whole, as in `rota.v1.Sessions`) and
/// the service of health. Fails only when the descriptors are broken.
pub fn newer(
    names: &'static [&'static str],
) -> Result<v1::ServerReflectionServer<impl v1::ServerReflection>, Error> {
    builder(names).build_v1()
}

/// Version v1alpha of the same, for which grpcurl and grpcio still ask. A server has both.
pub fn older(
    names: &'static [&'static str],
) -> Result<v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection>, Error> {
    builder(names).build_v1alpha()
}
