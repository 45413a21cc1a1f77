//! The quota that binds a client: that of the most specific of eight levels.
//!
//! # Invariant
//! A quota of a user comes before one of a client id, and a name before the default.

use std::collections::HashMap;

/// The kinds of quotas that are counted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuotaKind {
    /// Bytes of Produce requests.
    Produce,
    /// Bytes of answers to Fetch.
    Fetch,
    /// Time of a thread, in per cent.
    Request,
}

impl QuotaKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Produce, Self::Fetch, Self::Request];

    pub(super) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The name of a user or a client id in a quota; `None`: the default.
pub type EntityName = Option<Box<str>>;

/// One quota: at least one of user and client id is there.
#[derive(Clone, Debug)]
pub struct ClientQuota {
    /// The kind of its count.
    pub kind: QuotaKind,
    /// `None`: it is for a client id of all users.
    pub user: Option<EntityName>,
    /// `None`: it is for all client ids of a user together.
    pub client_id: Option<EntityName>,
    /// Bytes a second, or per cent.
    pub limit: f64,
}

/// Quotas of one kind, by the name of the user.
#[derive(Default)]
pub(super) struct Levels {
    pub(super) users: HashMap<Box<str>, UserLevels>,
    pub(super) default_user: UserLevels,
    /// Quotas of client ids of all users.
    pub(super) clients: ClientLevels,
}

#[derive(Default)]
pub(super) struct UserLevels {
    pub(super) clients: ClientLevels,
    /// The quota of all its client ids together.
    pub(super) own: Option<f64>,
}

#[derive(Default)]
pub(super) struct ClientLevels {
    pub(super) named: HashMap<Box<str>, f64>,
    pub(super) default: Option<f64>,
}

/// The clients that share a count.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    UserAndClientId,
    User,
    ClientId,
}

/// A quota that binds a client.
pub(super) struct Found {
    pub(super) limit: f64,
    pub(super) scope: Scope,
    /// No quota names the client id.
    pub(super) is_invented: bool,
}

impl ClientLevels {
    fn find(&self, client_id: &str, scope: Scope) -> Option<Found> {
        let named = self.named.get(client_id);
        let limit = *named.or(self.default.as_ref())?;
        Some(Found {
            limit,
            scope,
            is_invented: named.is_none(),
        })
    }
}

impl Levels {
    pub(super) fn add(&mut self, quota: ClientQuota) {
        let clients = match quota.user {
            None => &mut self.clients,
            Some(user) => {
                let levels = match user {
                    None => &mut self.default_user,
                    Some(name) => self.users.entry(name).or_default(),
                };
                if quota.client_id.is_none() {
                    levels.own = Some(quota.limit);
                }
                &mut levels.clients
            }
        };
        match quota.client_id {
            None => {}
            Some(None) => clients.default = Some(quota.limit),
            Some(Some(name)) => {
                clients.named.insert(name, quota.limit);
            }
        }
    }

    /// The most specific quota of a client.
    pub(super) fn find(&self, user: &str, client_id: &str) -> Option<Found> {
        let of_user = self.users.get(user).into_iter();
        for levels in of_user.chain([&self.default_user]) {
            let found = levels.clients.find(client_id, Scope::UserAndClientId);
            let own = levels.own.map(|limit| Found {
                limit,
                scope: Scope::User,
                is_invented: false,
            });
            if found.is_some() || own.is_some() {
                return found.or(own);
            }
        }
        self.clients.find(client_id, Scope::ClientId)
    }
}
