//! Who may measure this relay, and how: the configuration takes precedence over consensus
//! parameters, which take precedence over defaults (proposal 316, §3.1.1).

use crate::config::FlashFlowConfig;
use crate::parameters::{
    BACKGROUND_TRAFFIC_PERCENT, MAX_MEASUREMENT_DURATION, MEASUREMENT_PERIOD, MEASUREMENTS_ALLOWED,
    Parameter,
};
use netdoc::Consensus;
use onion::Duration;
use onion::measure::protocol::ClientShare;
use onion::measure::target::TargetParams;
use onion::router::KnownRelays;
use std::net::SocketAddr;

/// The relays of a consensus, and its parameters about streams to and from them.
pub(crate) fn known_relays(consensus: &Consensus) -> KnownRelays {
    let is_set = |name: &str, default: i32| consensus.params.get(name).unwrap_or(default) >= 1;
    let addresses = consensus.routers().iter().flat_map(|router| {
        let v4 = SocketAddr::from((router.address, router.or_port));
        std::iter::once(v4).chain(router.ipv6.map(SocketAddr::V6))
    });
    let identities = consensus.routers().iter().map(|router| router.fingerprint);
    let relays = addresses.collect::<KnownRelays>().with_identities(identities);
    relays.allowing(is_set("allow-network-reentry", 0), !is_set("refuseunknownexits", 1))
}

/// Who may measure the relay, under this configuration and these consensus parameters.
///
/// Consensus parameters are numbers, so only the configuration can name coordinators.
///
/// ```
/// use relay::{FlashFlowConfig, target_params};
///
/// let consensus = |name: &str| (name == "FFMaxMeasurementDuration").then_some(60);
/// let params = target_params(&FlashFlowConfig::default(), &consensus);
/// assert_eq!(params.max_duration.as_secs(), 60);
/// assert!(!params.is_allowed);
/// ```
#[must_use]
pub fn target_params(
    config: &FlashFlowConfig,
    consensus: &dyn Fn(&str) -> Option<i32>,
) -> TargetParams {
    let seconds = |parameter: Parameter, configured| {
        Duration::from_secs(parameter.resolve(configured, consensus).into())
    };
    let allowed = config.measurements_allowed.map(u32::from);
    let percent = BACKGROUND_TRAFFIC_PERCENT.resolve(config.background_traffic_percent, consensus);
    let share = u16::try_from(percent * 10).ok().and_then(ClientShare::from_permille);
    TargetParams {
        is_allowed: MEASUREMENTS_ALLOWED.resolve(allowed, consensus) == 1,
        coordinators: config.allowed_coordinators.clone().unwrap_or_default(),
        period: seconds(MEASUREMENT_PERIOD, config.measurement_period_s),
        // At most 99 %, so the share exists.
        client_share: share.unwrap_or(ClientShare::DEFAULT),
        max_duration: seconds(MAX_MEASUREMENT_DURATION, config.max_measurement_duration_s),
        measurements_per_period: config
            .measurements_per_period
            .unwrap_or(TargetParams::default().measurements_per_period),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::coordinator_key;
    use onion::identity::RsaId;
    use proptest::prelude::*;

    const NOTHING: &dyn Fn(&str) -> Option<i32> = &|_| None;

    #[test]
    fn streams_to_relays_of_the_consensus_are_refused_unless_reentry_is_allowed() {
        let text = include_str!("../../../engine/netdoc/tests/data/consensus-ns");
        let known = |text: &str| known_relays(&Consensus::parse(text.as_bytes()).expect("sound"));
        let relays = known(text);
        let one = |text: &str| {
            let consensus = Consensus::parse(text.as_bytes()).expect("sound");
            consensus.routers()[0].fingerprint
        };
        for to in ["61.239.100.129:443", "[2620:7:6001::103]:80"] {
            assert!(relays.contain(to.parse().expect("an address")), "{to}");
        }
        assert!(!relays.contain(([61, 239, 100, 129], 9030).into()), "a directory port is none");
        let allowing = text.replacen("\nparams ", "\nparams allow-network-reentry=1 ", 1);
        assert_ne!(allowing, text);
        let to = ([61, 239, 100, 129], 443).into();
        assert!(relays.forbid(to) && known(&allowing).contain(to) && !known(&allowing).forbid(to));
        let forbidding = text.replacen("\nparams ", "\nparams allow-network-reentry=0 ", 1);
        assert_eq!(known(&forbidding), relays);
        let (listed, other) = (one(text), RsaId([7; 20]));
        assert!(relays.trust(&listed) && !relays.trust(&other));
        let open = text.replacen("\nparams ", "\nparams refuseunknownexits=0 ", 1);
        assert!(known(&open).trust(&other));
    }

    #[test]
    fn the_defaults_are_those_of_the_proposal() {
        let params = target_params(&FlashFlowConfig::default(), NOTHING);
        assert_eq!(params, TargetParams::default());
        assert!(!params.is_allowed && params.coordinators.is_empty());
        assert_eq!((params.period.as_secs(), params.max_duration.as_secs()), (86_400, 45));
        assert_eq!((params.client_share.as_permille(), params.measurements_per_period), (250, 2));
    }

    #[test]
    fn the_consensus_overrides_defaults_and_the_configuration_overrides_the_consensus() {
        let consensus = |name: &str| match name {
            "FFMeasurementsAllowed" => Some(1),
            "FFMeasurementPeriod" => Some(7_200),
            "FFBackgroundTrafficPercent" => Some(10),
            "FFMaxMeasurementDuration" => Some(60),
            _ => None,
        };
        let params = target_params(&FlashFlowConfig::default(), &consensus);
        assert!(params.is_allowed && params.coordinators.is_empty());
        assert_eq!((params.period.as_secs(), params.max_duration.as_secs()), (7_200, 60));
        assert_eq!(params.client_share.as_permille(), 100);

        let key = coordinator_key(crate::config::tests::KEY).expect("a key");
        let config = FlashFlowConfig {
            measurements_allowed: Some(false),
            allowed_coordinators: Some(vec![key]),
            measurement_period_s: Some(3_600),
            measurements_per_period: Some(5),
            background_traffic_percent: Some(0),
            max_measurement_duration_s: Some(120),
        };
        config.check().expect("sound");
        let params = target_params(&config, &consensus);
        assert_eq!((params.is_allowed, params.coordinators), (false, vec![key]));
        assert_eq!((params.period.as_secs(), params.max_duration.as_secs()), (3_600, 120));
        assert_eq!(params.client_share.as_permille(), 0);
        let config = FlashFlowConfig { measurements_allowed: None, ..config };
        assert!(target_params(&config, &consensus).is_allowed);
    }

    proptest! {
        #[test]
        fn values_of_the_consensus_are_clamped(value: i32) {
            let params = target_params(&FlashFlowConfig::default(), &|_| Some(value));
            prop_assert_eq!(params.is_allowed, value >= 1);
            prop_assert!((3_600..=2_629_728).contains(&params.period.as_secs()));
            prop_assert!((10..=120).contains(&params.max_duration.as_secs()));
            prop_assert_eq!(i32::from(params.client_share.as_permille()), value.clamp(0, 99) * 10);
            if (3_600..=2_629_728).contains(&value) {
                prop_assert_eq!(i64::from(value), i64::try_from(params.period.as_secs()).unwrap());
            }
        }
    }
}
