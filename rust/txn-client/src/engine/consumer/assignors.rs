//! The assignors of classic groups: the leader's choice of who reads which partitions.
//!
//! Each is a function from members and partition counts to assignments, the same for the same input.
//! The names are Kafka's, since all members of a group have to share one.
//!
//! Sources: KIP-54 (sticky), KIP-429 (cooperative); the order of static members is KIP-345's.

use std::collections::{BTreeMap, BTreeSet};

use super::Place;
use crate::messages::classic::MemberSubscription;

/// A way to assign partitions; see `partition.assignment.strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Per topic: neighbouring partitions go to one member.
    Range,
    /// The partitions of all topics go round.
    RoundRobin,
    /// Partitions stay where they are as far as the balance allows, in cooperative rebalances.
    CooperativeSticky,
}

/// A member that gets partitions.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) id: String,
    pub(super) instance_id: Option<String>,
    pub(super) subscription: MemberSubscription,
}

/// Partitions per member, in the order of the candidates after `sort`.
pub(super) type Assignments = Vec<(String, Vec<Place>)>;

impl Assignor {
    /// The assignor with Kafka's name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Range, Self::RoundRobin, Self::CooperativeSticky]
            .into_iter()
            .find(|assignor| assignor.name() == name)
    }

    /// Kafka's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::RoundRobin => "roundrobin",
            Self::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// Assigns the partitions of topics to their subscribers; `counts` has the partitions per topic.
    pub(super) fn assign(
        self,
        mut members: Vec<Candidate>,
        counts: &BTreeMap<String, i32>,
    ) -> Assignments {
        // Static members come first, by their instance ids: they keep their places over restarts.
        let rank = |m: &Candidate| (m.instance_id.is_none(), m.instance_id.clone(), m.id.clone());
        members.sort_by_key(rank);
        let places = match self {
            Self::Range => range(&members, counts),
            Self::RoundRobin => round_robin(&members, counts),
            Self::CooperativeSticky => cooperative_sticky(&members, counts),
        };
        let ids = members.into_iter().map(|member| member.id);
        ids.zip(places).collect()
    }
}

fn subscribes(member: &Candidate, topic: &str) -> bool {
    member.subscription.topics.iter().any(|name| name == topic)
}

fn all_places(counts: &BTreeMap<String, i32>) -> impl Iterator<Item = Place> {
    let of_topic = |(topic, &count): (&String, &i32)| {
        let topic: std::sync::Arc<str> = topic.as_str().into();
        (0..count).map(move |partition| (topic.clone(), partition))
    };
    counts.iter().flat_map(of_topic)
}

fn range(members: &[Candidate], counts: &BTreeMap<String, i32>) -> Vec<Vec<Place>> {
    let mut assigned = vec![Vec::new(); members.len()];
    for (topic, &count) in counts {
        let subscribers: Vec<usize> = (0..members.len())
            .filter(|&index| subscribes(&members[index], topic))
            .collect();
        let Ok(heads) = i32::try_from(subscribers.len()) else {
            continue;
        };
        let mut next = 0;
        for (index, rank) in subscribers.into_iter().zip(0..) {
            let share = count / heads + i32::from(rank < count % heads);
            let own = (next..next + share).map(|partition| (topic.as_str().into(), partition));
            assigned[index].extend(own);
            next += share;
        }
    }
    assigned
}

fn round_robin(members: &[Candidate], counts: &BTreeMap<String, i32>) -> Vec<Vec<Place>> {
    let mut assigned = vec![Vec::new(); members.len()];
    let mut turn = 0;
    for place in all_places(counts) {
        let mut order = (0..members.len()).map(|step| (turn + step) % members.len());
        if let Some(index) = order.find(|&index| subscribes(&members[index], &place.0)) {
            assigned[index].push(place);
            turn = index + 1;
        }
    }
    assigned
}

/// Sticky, and a partition that another member still has goes to nobody in this generation. Its
/// owner gives it back and joins again; the next generation assigns it.
fn cooperative_sticky(members: &[Candidate], counts: &BTreeMap<String, i32>) -> Vec<Vec<Place>> {
    let owners = owners(members);
    let mut assigned = sticky(members, counts, &owners);
    for (index, own) in assigned.iter_mut().enumerate() {
        own.retain(|place| {
            owners
                .get(place)
                .is_none_or(|of| of.iter().all(|&o| o == index))
        });
    }
    assigned
        .into_iter()
        .map(|own| own.into_iter().collect())
        .collect()
}

/// The members that name a partition as theirs in the newest generation that anyone names it in.
fn owners(members: &[Candidate]) -> BTreeMap<Place, Vec<usize>> {
    let mut newest: BTreeMap<&Place, i32> = BTreeMap::new();
    for member in members {
        for place in &member.subscription.owned {
            let known = newest.entry(place).or_insert(i32::MIN);
            *known = member.subscription.generation.max(*known);
        }
    }
    let mut owners: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
    for (index, member) in members.iter().enumerate() {
        for place in &member.subscription.owned {
            if newest[place] == member.subscription.generation {
                owners.entry(place.clone()).or_default().push(index);
            }
        }
    }
    owners
}

fn sticky(
    members: &[Candidate],
    counts: &BTreeMap<String, i32>,
    owners: &BTreeMap<Place, Vec<usize>>,
) -> Vec<BTreeSet<Place>> {
    let mut assigned = vec![BTreeSet::new(); members.len()];
    let mut free = Vec::new();
    for place in all_places(counts) {
        let owner = owners.get(&place).filter(|of| of.len() == 1);
        let owner = owner.map(|of| of[0]);
        match owner.filter(|&index| subscribes(&members[index], &place.0)) {
            Some(index) => _ = assigned[index].insert(place),
            None => free.push(place),
        }
    }
    for place in free {
        let subscribers = (0..members.len()).filter(|&i| subscribes(&members[i], &place.0));
        if let Some(index) = subscribers.min_by_key(|&index| assigned[index].len()) {
            assigned[index].insert(place);
        }
    }
    while let Some((from, to, place)) = next_move(members, &assigned) {
        assigned[from].remove(&place);
        assigned[to].insert(place);
    }
    assigned
}

/// A partition whose move makes two members more equal. Each move lowers the sum of the squares of
/// the members' counts, so there is a last one.
fn next_move(members: &[Candidate], assigned: &[BTreeSet<Place>]) -> Option<(usize, usize, Place)> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&index| assigned[index].len());
    for &to in &order {
        for &from in order.iter().rev() {
            if assigned[from].len() <= assigned[to].len() + 1 {
                break;
            }
            let own = assigned[from].iter().rev();
            let mut fitting = own.filter(|place| subscribes(&members[to], &place.0));
            if let Some(place) = fitting.next() {
                return Some((from, to, place.clone()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, topics: &[&str], owned: &[i32], generation: i32) -> Candidate {
        Candidate {
            id: id.to_owned(),
            instance_id: None,
            subscription: MemberSubscription {
                topics: topics.iter().map(|&name| name.to_owned()).collect(),
                owned: owned.iter().map(|&p| ("t".into(), p)).collect(),
                generation,
            },
        }
    }

    fn counts(of: &[(&str, i32)]) -> BTreeMap<String, i32> {
        of.iter().map(|&(name, n)| (name.to_owned(), n)).collect()
    }

    fn numbers(assignments: &Assignments) -> Vec<(String, Vec<String>)> {
        let text = |(topic, partition): &Place| format!("{topic}{partition}");
        assignments
            .iter()
            .map(|(id, places)| (id.clone(), places.iter().map(text).collect()))
            .collect()
    }

    fn own(id: &str, places: &[&str]) -> (String, Vec<String>) {
        let places = places.iter().map(|&place| place.to_owned());
        (id.to_owned(), places.collect())
    }

    #[test]
    fn range_gives_neighbouring_partitions_of_each_topic() {
        let members = vec![
            member("b", &["t"], &[], -1),
            member("a", &["t", "u"], &[], -1),
        ];
        let found = Assignor::Range.assign(members, &counts(&[("t", 3), ("u", 1)]));
        assert_eq!(
            numbers(&found),
            [own("a", &["t0", "t1", "u0"]), own("b", &["t2"])]
        );
    }

    #[test]
    fn round_robin_skips_members_that_do_not_subscribe() {
        let members = vec![
            member("a", &["t"], &[], -1),
            member("b", &["t", "u"], &[], -1),
        ];
        let found = Assignor::RoundRobin.assign(members, &counts(&[("t", 3), ("u", 2)]));
        assert_eq!(
            numbers(&found),
            [own("a", &["t0", "t2"]), own("b", &["t1", "u0", "u1"])]
        );
    }

    #[test]
    fn static_members_have_their_places_by_instance_id() {
        let mut last = member("z", &["t"], &[], -1);
        last.instance_id = Some("1".to_owned());
        let members = vec![member("a", &["t"], &[], -1), last];
        let found = Assignor::Range.assign(members, &counts(&[("t", 2)]));
        assert_eq!(numbers(&found), [own("z", &["t0"]), own("a", &["t1"])]);
    }

    #[test]
    fn a_partition_that_another_member_has_is_assigned_in_the_next_generation() {
        let members = vec![
            member("a", &["t"], &[0, 1, 2, 3], 1),
            member("b", &["t"], &[], -1),
        ];
        let counts = counts(&[("t", 4)]);
        let found = Assignor::CooperativeSticky.assign(members, &counts);
        assert_eq!(numbers(&found), [own("a", &["t0", "t1"]), own("b", &[])]);
        let members = vec![member("a", &["t"], &[0, 1], 2), member("b", &["t"], &[], 2)];
        let found = Assignor::CooperativeSticky.assign(members, &counts);
        assert_eq!(
            numbers(&found),
            [own("a", &["t0", "t1"]), own("b", &["t2", "t3"])]
        );
    }

    #[test]
    fn the_claim_of_an_older_generation_does_not_count() {
        let members = vec![
            member("a", &["t"], &[0, 1], 1),
            member("b", &["t"], &[0, 1], 2),
        ];
        let found = Assignor::CooperativeSticky.assign(members, &counts(&[("t", 2)]));
        assert_eq!(numbers(&found), [own("a", &[]), own("b", &["t0"])]);
    }
}
