use super::{Position, Strategy};
use crate::netdir::{NetDir, RelayInfo};

/// Selects relays by bandwidth, as C tor does: the consensus weight times the position weight (dir-spec
/// §3.8.3).
#[derive(Clone, Copy, Debug, Default)]
pub struct Weighted;

impl Strategy for Weighted {
    fn name(&self) -> &'static str {
        "weighted"
    }

    fn weight(
        &self,
        netdir: &NetDir,
        relay: &RelayInfo,
        position: Position,
        _: &[&RelayInfo],
    ) -> f64 {
        f64::from(relay.weight_kb_s) * netdir.position_share(relay.flags, position)
    }
}
