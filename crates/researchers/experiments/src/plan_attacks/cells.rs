//! The settings in which each attack is played.

use super::authorities::PlanKind;
use super::flood::Flood;
use super::part_time::PartTime;
use super::shared_host::Knowledge;
use super::{
    Attack, Cell, Play, Settings, bad_authorities, bursts, denial, flood, part_time, shared_host,
    single_periods, slow_after,
};

impl Settings {
    /// The cells of an attack, in the order in which to run them.
    pub(super) fn cells_of(&self, attack: Attack) -> Vec<Cell> {
        let authorities = || self.authorities.iter().map(|number| usize::from(*number));
        let name = |what: &str, number: usize| format!("{what}, authorities {number}");
        let cell = |what: String, play: Play| Cell { attack, name: what, play };
        match attack {
            Attack::SinglePeriods => {
                let of = |number| {
                    let play = move |settings: &Self| single_periods::row(number, settings);
                    Cell::new(attack, name("single periods", number), play)
                };
                authorities().map(of).collect()
            }
            Attack::PartTime => {
                let of = |relays: PartTime| {
                    authorities().map(move |number| {
                        let play = move |settings: &Self| part_time::row(relays, number, settings);
                        let what = format!("part-time, {}", relays.name());
                        Cell::new(attack, name(&what, number), play)
                    })
                };
                PartTime::ALL.into_iter().flat_map(of).collect()
            }
            Attack::BadAuthorities => {
                let of = |number| {
                    let play = move |settings: &Self| bad_authorities::row(number, settings);
                    Cell::new(attack, name("bad authorities", number), play)
                };
                // With fewer, tor takes no median.
                authorities().filter(|number| *number >= 3).map(of).collect()
            }
            Attack::SlowAfter => {
                let of = |number| {
                    [true, false].map(|has_shared_seed| {
                        let seed = if has_shared_seed { "shared" } else { "separate" };
                        let play = move |settings: &Self| {
                            slow_after::row(number, has_shared_seed, settings)
                        };
                        Cell::new(attack, name(&format!("slow after, {seed} seed"), number), play)
                    })
                };
                authorities().flat_map(of).collect()
            }
            Attack::Denial => {
                let of = |plan: PlanKind| {
                    authorities().map(move |number| {
                        let play = move |settings: &Self| denial::row(plan, number, settings);
                        Cell::new(attack, name(&format!("denial, {}", plan.name()), number), play)
                    })
                };
                [PlanKind::Paper, PlanKind::Memoryless].into_iter().flat_map(of).collect()
            }
            Attack::Flood => {
                let all = [PlanKind::Paper, PlanKind::Memoryless].into_iter().flat_map(|plan| {
                    [Flood::None, Flood::RandomIdentities, Flood::SmallIdentities]
                        .map(|flood| (plan, flood))
                });
                let of = |(plan, flood): (PlanKind, Flood)| {
                    let what = format!("flood, {}, {}", plan.name(), flood.name());
                    cell(what, Box::new(move |settings: &Self| flood::row(plan, flood, settings)))
                };
                all.map(of).chain(self.replayed_floods()).collect()
            }
            Attack::SharedHost => {
                let all = [Knowledge::Known, Knowledge::Unknown]
                    .into_iter()
                    .flat_map(|knowledge| shared_host::RELAYS.map(|relays| (relays, knowledge)));
                let of = |(relays, knowledge)| {
                    let what = format!("one host, {relays} relays, {knowledge:?}");
                    cell(
                        what,
                        Box::new(move |settings: &Self| {
                            shared_host::row(relays, knowledge, settings)
                        }),
                    )
                };
                all.map(of).collect()
            }
            Attack::Bursts => {
                let of = |burst_s| {
                    let what = format!("bursts of {burst_s} s");
                    cell(what, Box::new(move |settings: &Self| bursts::row(burst_s, settings)))
                };
                bursts::BURSTS_S.into_iter().map(of).collect()
            }
        }
    }

    /// The flood of 4 February 2026, if there are data.
    fn replayed_floods(&self) -> Vec<Cell> {
        let Some(data) = &self.data else { return Vec::new() };
        let floods = [Flood::ReplayedFewNetworks, Flood::ReplayedManyNetworks];
        let all = [PlanKind::Paper, PlanKind::Memoryless]
            .into_iter()
            .flat_map(|plan| floods.map(|flood| (plan, flood)));
        let of = |(plan, flood): (PlanKind, Flood)| {
            let data = data.clone();
            let play = move |settings: &Self| flood::replayed(plan, flood, &data, settings);
            Cell::new(Attack::Flood, format!("flood, {}, {}", plan.name(), flood.name()), play)
        };
        all.map(of).collect()
    }
}
