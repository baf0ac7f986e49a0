//! Seeds of periods: our own, and those agreed with other authorities, which a file stores.

use super::seed;
use cli::Error;
use coordinator::agreement::{Agreed, AuthorityKey, Offer};
use coordinator::period::SlotSeed;
use coordinator::plan::{Seed, TeamRoom};
use onion::Rate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of seeds that are kept: more than the periods whose seeds may still have to be published.
const KEPT: usize = 64;

/// The maximum size of the file.
const FILE_MAX: u64 = 1 << 20;

/// The seeds of a coordinator.
pub(super) struct Seeds {
    master: Seed,
    path: PathBuf,
    /// Our last contribution.
    offer_path: PathBuf,
    agreed: Mutex<Agreements>,
    /// The shared random value of the newest consensus.
    shared_random: Mutex<Option<[u8; 32]>>,
}

/// The agreements by the beginnings of their periods, in Unix seconds, and their lengths, in seconds. A period of another
/// length has another seed.
type Agreements = BTreeMap<(u64, u64), Agreed>;

/// A line of the file: a period's agreement.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    period_unix_s: u64,
    #[serde(default = "day")]
    length_s: u64,
    seed: String,
    shared_random: Option<String>,
    own: usize,
    teams: Vec<Team>,
}

/// Our contribution for a period: unchanged after a restart, even if the consensus or the configuration has changed.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Offered {
    period_unix_s: u64,
    #[serde(default = "day")]
    length_s: u64,
    shared_random: Option<String>,
    capacity_bit_per_s: u64,
    at_once_max: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Team {
    key: String,
    capacity_bit_per_s: u64,
    at_once_max: u32,
}

/// The length of the periods of files that do not name it, in seconds.
const fn day() -> u64 {
    24 * 3600
}

impl Seeds {
    /// Opens the seed in this file, which is created if necessary, and the agreed seeds, in a file next to it.
    pub(super) fn open(seed_file: &Path) -> Result<Self, Error> {
        let master = seed::read_or_make(seed_file)?;
        let path = seed_file.with_extension("agreed");
        let agreed = match seed::read_secret(&path, FILE_MAX)? {
            Some(text) => parse(&text).ok_or_else(|| Error::Config {
                path: path.clone(),
                problem: "not in this program's format; remove it: then this coordinator uses its own seeds for the current and \
                          the previous period"
                    .to_owned(),
            })?,
            None => BTreeMap::new(),
        };
        let (agreed, shared_random) = (Mutex::new(agreed), Mutex::new(None));
        let offer_path = seed_file.with_extension("offered");
        Ok(Self { master, path, offer_path, agreed, shared_random })
    }

    /// Checks the files that [`open`](Self::open) reads, and creates nothing.
    pub(super) fn check(seed_file: &Path) -> Result<(), Error> {
        if seed_file.exists() { Self::open(seed_file).map(drop) } else { Ok(()) }
    }

    fn all(&self) -> MutexGuard<'_, Agreements> {
        // No code that holds the lock panics.
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Our contribution to the seed of the period that begins at this time and has this length, with the team's capacity
    /// and the newest consensus' shared random value. It is on the disk before it is returned, and does not change
    /// afterwards.
    pub(super) fn offer(
        &self,
        begin_unix_s: u64,
        length_s: u64,
        room: TeamRoom,
    ) -> Result<Offer, Error> {
        let contribution = self.master.contribution(begin_unix_s, length_s);
        if let Some(text) = seed::read_secret(&self.offer_path, FILE_MAX)? {
            // A different contribution would be a lie to the others.
            let past = serde_json::from_str(&text).ok();
            let past = past.and_then(|offered: Offered| {
                let offer = offered.offer(contribution)?;
                Some((offered.period_unix_s, offered.length_s, offer))
            });
            let (period_unix_s, period_length_s, offer) = past.ok_or_else(|| Error::Config {
                path: self.offer_path.clone(),
                problem: "not in this program's format; remove it once the next period is over: until then this \
                          coordinator uses its own seed"
                    .to_owned(),
            })?;
            if (period_unix_s, period_length_s) == (begin_unix_s, length_s) {
                return Ok(offer);
            }
        }
        let shared_random = self.shared_random();
        let offered = Offered {
            period_unix_s: begin_unix_s,
            length_s,
            shared_random: shared_random.map(hex::encode),
            capacity_bit_per_s: room.capacity.as_bit_per_s(),
            at_once_max: room.at_once_max,
        };
        let text = serde_json::to_string(&offered).expect("numbers and texts are JSON");
        seed::replace_secret(&self.offer_path, &(text + "\n"))?;
        Ok(Offer { contribution, room, shared_random })
    }

    /// The seed of the period's slots: the agreed one, or our own. The measurers' reports replace the capacity of our
    /// own team.
    pub(super) fn of_period(&self, begin_unix_s: u64, length_s: u64) -> SlotSeed {
        match self.agreed(begin_unix_s, length_s) {
            Some(Agreed { seed, teams, own, .. }) => {
                SlotSeed { seed, teams: teams.into_iter().map(|(_, room)| room).collect(), own }
            }
            None => SlotSeed {
                seed: self.own(begin_unix_s, length_s),
                teams: vec![TeamRoom::of(Rate::ZERO)],
                own: 0,
            },
        }
    }

    /// Our own seed of the period.
    pub(super) fn own(&self, begin_unix_s: u64, length_s: u64) -> Seed {
        self.master.of_period(begin_unix_s, length_s)
    }

    /// The agreement for the period.
    pub(super) fn agreed(&self, begin_unix_s: u64, length_s: u64) -> Option<Agreed> {
        self.all().get(&(begin_unix_s, length_s)).cloned()
    }

    /// Stores an agreement. It is used even if it cannot be written.
    pub(super) fn keep(
        &self,
        begin_unix_s: u64,
        length_s: u64,
        agreed: Agreed,
    ) -> Result<(), Error> {
        let mut all = self.all();
        all.insert((begin_unix_s, length_s), agreed);
        while all.len() > KEPT {
            all.pop_first();
        }
        let line = |((begin_unix_s, length_s), agreed): (&(u64, u64), &Agreed)| {
            line(*begin_unix_s, *length_s, agreed) + "\n"
        };
        seed::replace_secret(&self.path, &all.iter().map(line).collect::<String>())
    }

    /// Sets the shared random value of the newest consensus.
    pub(super) fn set_shared_random(&self, value: Option<[u8; 32]>) {
        *self.shared_random.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    fn shared_random(&self) -> Option<[u8; 32]> {
        *self.shared_random.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line(period_unix_s: u64, length_s: u64, agreed: &Agreed) -> String {
    let team = |(key, room): &(AuthorityKey, TeamRoom)| Team {
        key: key.to_string(),
        capacity_bit_per_s: room.capacity.as_bit_per_s(),
        at_once_max: room.at_once_max,
    };
    let line = Line {
        period_unix_s,
        length_s,
        seed: hex::encode(agreed.seed.as_bytes()),
        shared_random: agreed.shared_random.map(hex::encode),
        own: agreed.own,
        teams: agreed.teams.iter().map(team).collect(),
    };
    serde_json::to_string(&line).expect("numbers and texts are JSON")
}

fn bytes(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok().map(|()| bytes)
}

impl Offered {
    fn offer(&self, contribution: [u8; 32]) -> Option<Offer> {
        let shared_random = match self.shared_random.as_deref() {
            Some(text) => Some(bytes(text)?),
            None => None,
        };
        let capacity = Rate::from_bit_per_s(self.capacity_bit_per_s);
        let room = TeamRoom { capacity, at_once_max: self.at_once_max };
        Some(Offer { contribution, room, shared_random })
    }
}

fn parse(text: &str) -> Option<Agreements> {
    let agreed = |line: &str| {
        let line: Line = serde_json::from_str(line).ok()?;
        let team = |team: &Team| {
            let capacity = Rate::from_bit_per_s(team.capacity_bit_per_s);
            let room = TeamRoom { capacity, at_once_max: team.at_once_max };
            Some((AuthorityKey(bytes(&team.key)?), room))
        };
        let teams = line.teams.iter().map(team).collect::<Option<Vec<_>>>()?;
        let own = Some(line.own).filter(|own| *own < teams.len())?;
        let shared_random = match line.shared_random.as_deref() {
            Some(text) => Some(bytes(text)?),
            None => None,
        };
        let seed = Seed::from_bytes(bytes(&line.seed)?);
        Some(((line.period_unix_s, line.length_s), Agreed { seed, teams, own, shared_random }))
    };
    text.lines().map(agreed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    const DAY_S: u64 = 24 * 3600;

    fn agreed(byte: u8) -> Agreed {
        let room = |mbit| TeamRoom { capacity: Rate::from_mbit_per_s(mbit), at_once_max: 7 };
        Agreed {
            seed: Seed::from_bytes([byte; 32]),
            teams: vec![(AuthorityKey([1; 32]), room(10.0)), (AuthorityKey([2; 32]), room(20.0))],
            own: 1,
            shared_random: byte.is_multiple_of(2).then_some([byte; 32]),
        }
    }

    #[test]
    fn agreements_survive_a_restart_and_only_the_owner_can_read_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("schedule.seed");
        let seeds = Seeds::open(&path).expect("made");
        assert_eq!(seeds.agreed(1, DAY_S), None);
        for begin in 0..70u8 {
            seeds.keep(begin.into(), DAY_S, agreed(begin)).expect("kept");
        }
        let again = Seeds::open(&path).expect("read");
        assert_eq!(again.own(5, DAY_S), seeds.own(5, DAY_S));
        assert_eq!(again.agreed(69, DAY_S), Some(agreed(69)));
        assert_eq!(again.agreed(6, DAY_S), Some(agreed(6)));
        assert_eq!(again.agreed(5, DAY_S), None, "too old");
        let file = folder.path().join("schedule.agreed");
        assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("ours");
        let error = Seeds::open(&path).map(drop).expect_err("exposed").to_string();
        assert!(error.contains("mode 644") && error.contains("schedule.agreed"), "{error}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("ours");
        fs::write(&file, "{}\n").expect("ours");
        let error = Seeds::open(&path).map(drop).expect_err("no agreement").to_string();
        assert!(error.contains("remove it"), "{error}");
    }

    /// When the seed of the shorter period is published, the longer one with its beginning goes on.
    #[test]
    fn a_period_of_another_length_has_another_seed_and_another_offer() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("schedule.seed");
        let seeds = Seeds::open(&path).expect("made");
        seeds.keep(1, DAY_S, agreed(7)).expect("kept");
        for seeds in [&seeds, &Seeds::open(&path).expect("read")] {
            assert_eq!(seeds.of_period(1, DAY_S).seed, agreed(7).seed);
            assert_eq!(seeds.agreed(1, 2 * DAY_S), None);
            let longer = seeds.of_period(1, 2 * DAY_S);
            assert_eq!((longer.seed, longer.teams.len()), (seeds.own(1, 2 * DAY_S), 1));
            assert_ne!(seeds.own(1, 2 * DAY_S), seeds.own(1, DAY_S));
        }
        seeds.keep(1, 2 * DAY_S, agreed(8)).expect("kept");
        let found = [DAY_S, 2 * DAY_S].map(|length_s| seeds.agreed(1, length_s));
        assert_eq!(found, [Some(agreed(7)), Some(agreed(8))]);

        let room = |mbit| TeamRoom { capacity: Rate::from_mbit_per_s(mbit), at_once_max: 7 };
        let first = seeds.offer(1, DAY_S, room(10.0)).expect("kept");
        let longer = seeds.offer(1, 2 * DAY_S, room(20.0)).expect("kept");
        assert_ne!(longer.contribution, first.contribution);
        assert_eq!(longer.room, room(20.0), "a new offer");
    }

    #[test]
    fn an_offer_is_unchanged_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("schedule.seed");
        let room = |mbit| TeamRoom { capacity: Rate::from_mbit_per_s(mbit), at_once_max: 7 };
        let seeds = Seeds::open(&path).expect("made");
        seeds.set_shared_random(Some([7; 32]));
        let first = seeds.offer(100, DAY_S, room(10.0)).expect("kept");
        assert_eq!((first.shared_random, first.room), (Some([7; 32]), room(10.0)));
        // After the restart there is no consensus yet, and another team.
        let seeds = Seeds::open(&path).expect("read");
        let again = seeds.offer(100, DAY_S, room(20.0)).expect("read");
        assert_eq!((again.shared_random, again.room), (first.shared_random, first.room));
        assert_eq!(again.contribution, first.contribution);
        let next = seeds.offer(200, DAY_S, room(20.0)).expect("kept");
        assert_eq!((next.shared_random, next.room), (None, room(20.0)));
        assert_ne!(next.contribution, *seeds.own(200, DAY_S).as_bytes());
        // An unreadable line may be another contribution for the same period.
        let file = folder.path().join("schedule.offered");
        let text = fs::read_to_string(&file).expect("there");
        let (later, torn) = (text.replacen('{', "{\"new\":1,", 1), &text[..20]);
        let random = text.replace("null", "\"7\"");
        for bad in [later.as_str(), torn, random.as_str()] {
            fs::write(&file, bad).expect("ours");
            let error =
                seeds.offer(200, DAY_S, room(20.0)).map(drop).expect_err("unread").to_string();
            assert!(error.contains("schedule.offered"), "{error}");
        }
    }
}
