use super::*;
use onion::Rate;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const BEGIN_UNIX_S: u64 = 1_800_057_600;
const TIMES: Times = Times { period_s: 86_400, slot_s: 71, round_s: 10, is_papers: false };

fn key_seed(party: usize) -> [u8; 32] {
    [u8::try_from(party).expect("few") + 1; 32]
}

fn signing(party: usize) -> SigningKey {
    SigningKey::from_bytes(&key_seed(party))
}

fn key(party: usize) -> AuthorityKey {
    AuthorityKey(signing(party).verifying_key().to_bytes())
}

fn group(parties: usize) -> Group {
    Group::new((0..parties).map(key), TIMES).expect("some")
}

/// The input of a party; a liar may have several contributions.
fn offer(party: usize, version: u8) -> Offer {
    let mut contribution = [version; 32];
    contribution[0] = u8::try_from(party).expect("few");
    let room = TeamRoom { capacity: Rate::from_mbit_per_s(1000.0 + party as f64), at_once_max: 9 };
    Offer { contribution, room, shared_random: Some([5; 32]) }
}

fn honest(parties: usize, party: usize) -> Agreement {
    Agreement::new(group(parties), &key_seed(party), BEGIN_UNIX_S, offer(party, 0))
}

/// All parties except the lost ones send all their statements to each other.
fn exchange(all: &mut [Agreement], lost: &[usize]) {
    let sent: Vec<(AuthorityKey, Vec<Vec<u8>>)> =
        all.iter().map(|agreement| (agreement.own(), agreement.statements())).collect();
    for (to, receiver) in all.iter_mut().enumerate() {
        for (from, (sender, statements)) in sent.iter().enumerate() {
            if from != to && !lost.contains(&from) && !lost.contains(&to) {
                for statement in statements {
                    receiver.handle_statement(*sender, statement).expect("honest");
                }
            }
        }
    }
}

fn step(all: &mut [Agreement], step: u32, lost: &[usize]) {
    all.iter_mut().for_each(|agreement| assert!(!agreement.handle_step(step)));
    exchange(all, lost);
    exchange(all, lost);
}

#[test]
fn all_connected_authorities_agree_on_one_seed_and_know_their_own_teams() {
    let mut all: Vec<_> = (0..4).map(|party| honest(4, party)).collect();
    (0..6).for_each(|round| step(&mut all, round, &[]));
    assert!(all.iter_mut().all(|agreement| agreement.handle_step(6)));
    let outcomes: Vec<Outcome> = all.iter().map(Agreement::outcome).collect();
    let agreed: Vec<&Agreed> =
        outcomes.iter().filter_map(|outcome| outcome.agreed.as_ref()).collect();
    assert_eq!(agreed.len(), 4);
    for (agreed, party) in agreed.iter().zip(&all) {
        let first = outcomes[0].agreed.as_ref().expect("agreed");
        assert_eq!((&agreed.seed, &agreed.teams), (&first.seed, &first.teams));
        assert_eq!(agreed.teams[agreed.own].0, party.own());
        assert_eq!(agreed.shared_random, Some([5; 32]));
    }
    let rooms: Vec<TeamRoom> = (0..4).map(|party| offer(party, 0).room).collect();
    assert!(rooms.iter().all(|room| agreed[0].teams.iter().any(|(_, team)| team == room)));
    assert!(outcomes.iter().all(|outcome| outcome.unconfirmed.is_empty()));
    // Another period has another seed, even from the same contributions.
    let mut later: Vec<_> = (0..4)
        .map(|party| {
            Agreement::new(group(4), &key_seed(party), BEGIN_UNIX_S + 86_400, offer(party, 0))
        })
        .collect();
    (0..6).for_each(|round| step(&mut later, round, &[]));
    assert!(later[0].outcome().agreed.expect("agreed").seed != agreed[0].seed);
}

#[test]
fn an_authority_that_is_lost_in_the_middle_is_named_and_excluded() {
    for (lost_at, part) in [(0, Part::Silent), (1, Part::Withheld), (3, Part::Took)] {
        let mut all: Vec<_> = (0..3).map(|party| honest(3, party)).collect();
        for round in 0..4 {
            step(&mut all, round, if round >= lost_at { &[2] } else { &[] });
        }
        let outcomes: Vec<Outcome> = all.iter().map(Agreement::outcome).collect();
        assert_eq!(outcomes[0].parts[&key(2)], part);
        assert_eq!(outcomes[0].parts, outcomes[1].parts);
        let seeds: Vec<_> = outcomes[..2]
            .iter()
            .map(|outcome| outcome.agreed.as_ref().map(|agreed| &agreed.seed))
            .collect();
        assert!(seeds[0].is_some() && seeds[0] == seeds[1]);
        let members = outcomes[0].agreed.as_ref().map(|agreed| agreed.teams.len());
        assert_eq!(members, Some(if part == Part::Took { 3 } else { 2 }));
        // An authority that was lost before it received two reveals has its own seed.
        assert_eq!(outcomes[2].agreed.is_some(), part == Part::Took);
    }
}

#[test]
fn an_authority_whose_statements_are_lost_learns_that_others_may_exclude_it() {
    let mut all: Vec<_> = (0..3).map(|party| honest(3, party)).collect();
    for round in 0..4 {
        all.iter_mut().for_each(|agreement| assert!(!agreement.handle_step(round)));
        let sent: Vec<_> =
            all.iter().map(|agreement| (agreement.own(), agreement.statements())).collect();
        // Party 2 receives statements, and its own are lost.
        for (receiver, sender) in [(0, 1), (1, 0), (2, 0), (2, 1)] {
            for statement in &sent[sender].1 {
                let _late = all[receiver].handle_statement(sent[sender].0, statement);
            }
        }
    }
    let outcome = all[2].outcome();
    let mut others = vec![key(0), key(1)];
    others.sort_unstable();
    assert_eq!(outcome.unconfirmed, others);
    assert_eq!(all[0].outcome().parts[&key(2)], Part::Silent);
    assert!(all[0].outcome().unconfirmed.is_empty());
}

#[test]
fn each_invalid_statement_is_rejected_with_its_reason() {
    let mut party = honest(3, 0);
    let of = |group: &Group, begin, by: usize, content| {
        Statement::new(group, begin, key(by), content).signed_by(&signing(by))
    };
    let reveal = Content::Reveal(offer(1, 0).contribution);
    let group = group(3);
    let [other, of_paper] = [Times { slot_s: 72, ..TIMES }, Times { is_papers: true, ..TIMES }]
        .map(|times| Group::new((0..3).map(key), times).expect("three"));
    let mut refuse = |statement: &Statement, error| {
        assert_eq!(party.handle_statement(key(1), &statement.encode()), Err(error));
    };
    refuse(&of(&other, BEGIN_UNIX_S, 1, reveal), StatementError::OtherGroup);
    refuse(&of(&of_paper, BEGIN_UNIX_S, 1, reveal), StatementError::OtherGroup);
    refuse(&of(&group, 1, 1, reveal), StatementError::OtherPeriod);
    refuse(&of(&group, BEGIN_UNIX_S, 1, reveal), StatementError::TooEarly);
    let commit = honest(3, 1).commitments[&key(1)][0].clone();
    let by_stranger = commit.clone().signed_by(&signing(7));
    refuse(&by_stranger, StatementError::Stranger(key(7)));
    let mut forged = commit.clone();
    forged.signatures.insert(key(2), [1; 64]);
    refuse(&forged, StatementError::BadSignature(key(2)));
    let mut unsigned = commit.clone().signed_by(&signing(2));
    unsigned.signatures.remove(&key(1));
    refuse(&unsigned, StatementError::NotSigned(key(1)));
    let mut bytes = commit.encode();
    bytes.pop();
    assert_eq!(party.handle_statement(key(1), &bytes), Err(StatementError::Malformed));
    // In the second round a second signature is required.
    party.handle_step(1);
    assert_eq!(party.handle_statement(key(1), &commit.encode()), Err(StatementError::TooLate));
    let passed_on = commit.signed_by(&signing(2)).encode();
    assert_eq!(party.handle_statement(key(2), &passed_on), Ok(()));
    party.handle_step(2);
    let wrong = of(&group, BEGIN_UNIX_S, 1, Content::Reveal([3; 32])).encode();
    let error = StatementError::DoesNotOpen(key(1));
    assert_eq!(party.handle_statement(key(1), &wrong), Err(error));
    let right = of(&group, BEGIN_UNIX_S, 1, reveal).encode();
    assert_eq!(party.handle_statement(key(1), &right), Ok(()));
    assert_eq!(party.outcome().parts[&key(1)], Part::Took);
}

#[test]
fn a_group_has_2_to_16_members_and_one_round_fewer_than_members() {
    assert_eq!(Group::new([key(0), key(0)], TIMES), Err(GroupError(1)));
    assert!(Group::new((0..17).map(key), TIMES).is_err());
    assert_eq!(group(2).rounds(), 1);
    assert_eq!(group(9).rounds(), 8);
}

/// An action of liars: in a round, before or after the exchange of the honest parties, they send a statement to one of
/// those.
#[derive(Clone, Debug)]
struct Lie {
    step: u32,
    is_late: bool,
    to: usize,
    kind: LieKind,
}

#[derive(Clone, Debug)]
enum LieKind {
    /// A liar's commitment or reveal, signed by those liars whose bit is set.
    Own { author: usize, version: u8, reveals: bool, signers: u8 },
    /// A statement of an honest party, also signed by liars.
    PassOn { of: usize, which: usize, signers: u8 },
}

fn lies() -> impl Strategy<Value = Vec<Lie>> {
    let own = (0usize..4, 0u8..3, any::<bool>(), any::<u8>()).prop_map(
        |(author, version, reveals, signers)| LieKind::Own { author, version, reveals, signers },
    );
    let pass_on = (0usize..8, 0usize..12, any::<u8>())
        .prop_map(|(of, which, signers)| LieKind::PassOn { of, which, signers });
    let kind = prop_oneof![3 => own, 1 => pass_on];
    let lie = (0u32..12, any::<bool>(), 0usize..8, kind)
        .prop_map(|(step, is_late, to, kind)| Lie { step, is_late, to, kind });
    vec(lie, 0..60)
}

/// Sends the statements of liars for this half of a round; `known` are those of the honest parties.
fn lie(lies: &[Lie], at: (u32, bool), all: &mut [Agreement], parties: usize, known: &[Vec<u8>]) {
    let honest = all.len();
    let liars = honest..parties;
    if liars.is_empty() {
        return;
    }
    let sign = |mut statement: Statement, signers: u8| {
        for (bit, liar) in liars.clone().enumerate() {
            if signers >> bit & 1 == 1 {
                statement = statement.signed_by(&signing(liar));
            }
        }
        statement
    };
    for Lie { to, kind, .. } in lies.iter().filter(|lie| (lie.step, lie.is_late) == at) {
        let statement = match kind {
            LieKind::Own { author, version, reveals, signers } => {
                let author = honest + author % liars.len();
                let offer = offer(author, *version);
                let liar = Agreement::new(group(parties), &key_seed(author), BEGIN_UNIX_S, offer);
                let statement = if *reveals {
                    let content = Content::Reveal(offer.contribution);
                    Statement::new(&liar.group, BEGIN_UNIX_S, liar.own, content)
                        .signed_by(&liar.key)
                } else {
                    liar.commitments[&liar.own][0].clone()
                };
                sign(statement, *signers)
            }
            LieKind::PassOn { of, which, signers } => {
                let Some(bytes) = known.get((of * 12 + which) % known.len().max(1)) else {
                    continue;
                };
                sign(Statement::decode(bytes).expect("honest"), *signers)
            }
        };
        let from = key(honest);
        let _refused = all[to % honest].handle_statement(from, &statement.encode());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// At least two authorities are connected. All others are unreachable or lie: they send anything to anyone,
    /// including the statements of others.
    #[test]
    fn all_connected_honest_authorities_agree(
        honest_count in 2usize..4, bad in 0usize..4, lies in lies(), order in vec(any::<u8>(), 16),
    ) {
        let parties = honest_count + bad;
        let mut all: Vec<_> = (0..honest_count).map(|party| honest(parties, party)).collect();
        let steps = 2 * group(parties).rounds();
        let mut known: Vec<Vec<u8>> = vec![];
        for step in 0..steps {
            all.iter_mut().for_each(|agreement| { agreement.handle_step(step); });
            lie(&lies, (step, false), &mut all, parties, &known);
            let sent: Vec<_> = all.iter().map(|agreement| (agreement.own(), agreement.statements())).collect();
            for (sender, (from, statements)) in sent.iter().enumerate() {
                for (receiver, agreement) in all.iter_mut().enumerate() {
                    // In any order, and some twice.
                    let turn = usize::from(order[(sender * 4 + receiver) % 16]);
                    let twice = statements.iter().chain(statements);
                    for statement in twice.skip(turn % statements.len()).take(statements.len() + turn % 2) {
                        if receiver != sender {
                            prop_assert_eq!(agreement.handle_statement(*from, statement), Ok(()));
                        }
                    }
                }
            }
            lie(&lies, (step, true), &mut all, parties, &known);
            known = sent.into_iter().flat_map(|(_, statements)| statements).collect();
        }
        let outcomes: Vec<Outcome> = all.iter().map(Agreement::outcome).collect();
        for (outcome, party) in outcomes.iter().zip(&all) {
            prop_assert_eq!(&outcome.parts, &outcomes[0].parts);
            let agreed = outcome.agreed.as_ref().expect("two or more");
            let first = outcomes[0].agreed.as_ref().expect("two or more");
            prop_assert!(agreed.seed == first.seed && agreed.teams == first.teams);
            prop_assert_eq!(agreed.shared_random, first.shared_random);
            prop_assert_eq!(agreed.teams[agreed.own].0, party.own());
            for other in &all {
                prop_assert_eq!(outcome.parts[&other.own()], Part::Took);
            }
        }
    }
}
