//! How a round begins: the target accepts it, and the measurers open their sockets and circuits.

use super::ordering::{self, client_share};
use super::round::{Plan, round_order};
use super::run::{News, Run};
use super::{Coordinator, Progress};
use crate::member::{MemberError, Nonce, RoundWayBack};
use crate::plan::Load;
use coordinator::Failure;
use link::unix_time_s;
use onion::Rate;
use onion::measure::order::OrderConfig;
use onion::measure::protocol::{CoordinatorKey, Order};
use rand::Rng;
use std::sync::Arc;

/// How long a relay may accept an order: clocks may differ by minutes.
const ORDER_LIFETIME_S: u64 = 600;

impl Run<'_> {
    /// In an echo, the target must accept the round before the measurers come, in the time that
    /// `self.retries` has left.
    pub(super) fn give_order(&mut self, mut plan: Plan, coordinator: &Coordinator) {
        // An earlier attempt's link closes first.
        self.order = None;
        let (mut nonce, mut random) = ([0; 32], [0; 24]);
        self.team.rng.fill_bytes(&mut nonce);
        self.team.rng.fill_bytes(&mut random);
        let nonce = Nonce(nonce);
        plan.way_back = RoundWayBack::Echo { nonce };
        let short = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let members = plan.assignments.iter().map(|it| &self.team.mates[it.measurer.0].member);
        let params = self.measurement.params();
        let order = Order {
            coordinator: CoordinatorKey::of_seed(&coordinator.key_seed),
            target: self.request.target.ids,
            measurers: members.map(|member| member.key()).collect(),
            seconds: short(plan.seconds),
            client_share: client_share(params.ratio),
            sockets: short(plan.assignments.iter().map(|it| it.sockets).sum()),
            expires_unix_s: unix_time_s() + ORDER_LIFETIME_S,
            nonce,
        };
        let config = OrderConfig {
            target: self.request.target,
            order,
            key_seed: coordinator.key_seed,
            accept_timeout: self.retries.deadline().saturating_since(self.now()),
            random,
            unix_time_s: unix_time_s(),
        };
        let (sender, round) = (self.sender.clone(), plan.round);
        let report = move |report| {
            // Nobody listens any more once the measurement is over.
            let _ = sender.send((round, News::Order(report)));
        };
        match ordering::give(config, &self.team.site, report) {
            Ok(thread) => {
                self.order = Some(thread);
                self.ordered = Some(plan);
            }
            Err(error) => self.coordinator_broken(error.to_string()),
        }
    }

    /// Has the measurers open their sockets and circuits.
    pub(super) fn prepare(&mut self, plan: &Plan, progress: &mut dyn FnMut(Progress)) {
        let mut circuits = 0;
        for assignment in &plan.assignments {
            let setup_timeout = plan.deadline.saturating_since(self.now());
            let order =
                round_order(self.team, &self.request, self.rtt, plan, assignment, setup_timeout);
            let load = Load::plan(&order, self.rtt);
            circuits += load.sockets * load.circuits_per_socket;
            let (sender, round, measurer) = (self.sender.clone(), plan.round, assignment.measurer);
            let reports = Arc::new(move |report| {
                // Nobody listens any more once the measurement is over.
                let _ = sender.send((round, News::Member(measurer, report)));
            });
            let member = &mut self.team.mates[measurer.0].member;
            if let Err(MemberError(detail)) = member.prepare(order, reports) {
                let failure = Failure::MeasurerLost { detail };
                self.measurement.handle_failure(self.now(), Some(measurer), failure);
            }
        }
        let allocated: Rate = plan.assignments.iter().map(|assignment| assignment.rate).sum();
        let sockets = plan.assignments.iter().map(|assignment| assignment.sockets).sum();
        progress(Progress::Preparing { round: plan.round, allocated, sockets, circuits });
    }
}
