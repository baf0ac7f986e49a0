//! Writing a network as a scenario.

use super::tables::{ClientTable, FetchTable, File, Pauses, RelayTable, SiteTable, SizeTable};
use crate::error::Error;
use crate::network::{Client, Network, Site, Users};
use onion::Rate;
use sim::world::Fetch;
use std::path::Path;

/// The text of a scenario from which [`read_scenario`](super::read_scenario) creates the same relays, servers
/// and clients. Settings are not written: the reader's apply. `models` is the folder of users' models, relative
/// to the scenario's. Hosts that differ only by name share a table, and are renamed.
///
/// # Errors
/// If a host has different rates up and down, or has users and there are no models.
pub fn scenario_text(network: &Network, models: Option<&Path>) -> Result<String, Error> {
    let relays = network.relays.iter().map(|relay| {
        Ok(RelayTable {
            count: 1,
            name: relay.site.name.clone(),
            country: relay.site.country.clone(),
            mbit_per_s: rate(&relay.site)?,
            limit_mbit_per_s: relay.limit.map(mbit_per_s),
            weight: Some(relay.weight),
            guard: relay.is_guard,
            exit: relay.is_exit,
        })
    });
    let mut servers: Vec<SiteTable> = Vec::new();
    for site in &network.servers {
        let rate = rate(site)?;
        match servers
            .iter_mut()
            .find(|server| server.country == site.country && server.mbit_per_s == rate)
        {
            Some(table) => table.count += 1,
            None => servers.push(SiteTable {
                count: 1,
                name: String::new(),
                country: site.country.clone(),
                mbit_per_s: rate,
            }),
        }
    }
    let mut clients: Vec<(&Client, ClientTable)> = Vec::new();
    for client in &network.clients {
        let rate = rate(&client.site)?;
        let alike = |(other, table): &&mut (&Client, ClientTable)| {
            other.site.country == client.site.country
                && table.mbit_per_s == rate
                && are_same(&other.users, &client.users)
        };
        if let Some((_, table)) = clients.iter_mut().find(alike) {
            table.count += 1;
            continue;
        }
        let (fetch, name) = match &client.users {
            Users::Fetch(fetch) => (Some(fetch_table(fetch)), "benchmark"),
            Users::Models(_) if models.is_none() => {
                let problem =
                    "clients have users by models, but the folder of the models is unknown";
                return Err(Error::Impossible(problem.into()));
            }
            Users::Models(_) => (None, "users"),
        };
        let table = ClientTable {
            count: 1,
            name: name.into(),
            country: client.site.country.clone(),
            mbit_per_s: rate,
            users: fetch.is_none(),
            fetch,
        };
        clients.push((client, table));
    }
    let file = File {
        shadow: None,
        models: models.map(Path::to_owned),
        choices: <_>::default(),
        relays: relays.collect::<Result<_, Error>>()?,
        servers,
        clients: clients.into_iter().map(|(_, table)| table).collect(),
    };
    toml::to_string(&file).map_err(|error| Error::Impossible(error.to_string()))
}

fn are_same(one: &Users, other: &Users) -> bool {
    match (one, other) {
        (Users::Models(_), Users::Models(_)) => true,
        (Users::Fetch(one), Users::Fetch(other)) => {
            one.pauses == other.pauses && one.count == other.count && one.sizes == other.sizes
        }
        _ => false,
    }
}

fn fetch_table(fetch: &Fetch) -> FetchTable {
    let size = |size: &sim::world::Size| SizeTable {
        weight: size.weight,
        bytes: size.bytes,
        timeout_s: size.timeout.map(|timeout| timeout.as_secs_f64()),
    };
    let every_s = match fetch.pauses[..] {
        [only] => Pauses::One(only.as_secs_f64()),
        _ => Pauses::Several(fetch.pauses.iter().map(|pause| pause.as_secs_f64()).collect()),
    };
    FetchTable { every_s, count: fetch.count, sizes: fetch.sizes.iter().map(size).collect() }
}

fn rate(site: &Site) -> Result<f64, Error> {
    if site.up == site.down {
        return Ok(mbit_per_s(site.up));
    }
    let problem =
        format!("{} sends and gets at other rates: a scenario has one for both", site.name);
    Err(Error::Impossible(problem))
}

#[expect(clippy::cast_precision_loss, reason = "rates are far below 2⁵³")]
fn mbit_per_s(rate: Rate) -> f64 {
    rate.as_bit_per_s() as f64 / 1e6
}
