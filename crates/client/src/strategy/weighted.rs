use super::{Position, Strategy};
use crate::view::{RelayInfo, View};
use netdoc::consensus::{Flag, Flags};

/// By bandwidth, as stock clients choose: the weight in the consensus times that of the position for the relay's kind
/// (dir-spec §3.8.3).
#[derive(Clone, Copy, Debug, Default)]
pub struct Weighted;

impl Strategy for Weighted {
    fn name(&self) -> &'static str {
        "weighted"
    }

    fn weight(&self, view: &View, relay: &RelayInfo, position: Position, _: &[&RelayInfo]) -> f64 {
        f64::from(relay.weight_kb_s) * position_share(view, relay.flags, position)
    }
}

/// The weight of a position for a relay's kind (dir-spec §3.8.3): 0 to 1.
pub(crate) fn position_share(view: &View, flags: Flags, position: Position) -> f64 {
    let is_exit = flags.contains(Flag::Exit) && !flags.contains(Flag::BadExit);
    let is_guard = flags.contains(Flag::Guard);
    let name = match (position, is_guard, is_exit) {
        (Position::Guard, true, true) => "Wgd",
        (Position::Guard, true, false) => "Wgg",
        (Position::Guard, false, _) => "Wgm",
        (Position::Middle, true, true) => "Wmd",
        (Position::Middle, true, false) => "Wmg",
        (Position::Middle, false, true) => "Wme",
        (Position::Middle, false, false) => "Wmm",
        (Position::Exit, true, true) => "Wed",
        (Position::Exit, true, false) => "Weg",
        (Position::Exit, false, true) => "Wee",
        (Position::Exit, false, false) => "Wem",
    };
    view.position_weight(name)
}
