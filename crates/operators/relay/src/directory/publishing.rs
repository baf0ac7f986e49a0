//! Makes descriptors and sends them to the authorities.

use super::{Directory, FETCHER, Own, REMAKE_PAUSE};
use crate::config::announced;
use crate::descriptor::{Announcement, Capabilities, DescriptorError, write};
use crate::event::RelayEvent;
use crate::extra_info::ExtraInfo;
use crate::family::FamilyKey;
use crate::publish::{self, Answer, Patience};
use crate::schedule::{Content, Sent};
use link::unix_time_s;
use netdoc::fetch::Resource;
use netdoc::{RsaId, ServerDescriptor, descriptor};
use onion::Instant;
use sha1::{Digest, Sha1};
use std::net::SocketAddr;

/// Authorities accept a descriptor whose date is at most this far ahead: C tor's `ROUTER_ALLOW_SKEW`.
const AHEAD_MAX_S: u64 = 12 * 3600;

impl Directory {
    /// Makes a descriptor if one is due, and sends it to the next authority that needs it. Returns
    /// whether another is due at once.
    pub(super) fn publish(&mut self) -> bool {
        let now = self.clock.now();
        let content = Content {
            limit: announced(self.bandwidth.limit()),
            observed_bytes_s: self.bandwidth.observed_bytes_s(),
        };
        if self.schedule.wants_descriptor(now, content) {
            self.published = date_after(self.published, unix_time_s());
            if let Err(error) = self.make_descriptor(now, content) {
                self.emit(RelayEvent::Ended(error.to_string()));
                return false;
            }
            self.schedule.descriptor_made(now, content);
        }
        while let Some(place) = self.schedule.due(now) {
            let Some(authority) = self.settings.authorities.get(place).copied() else { break };
            let both = format!("{}{}", self.descriptor, self.extra_info);
            let result = publish::post(authority, &both, self.clock, Patience::default());
            let sent = match &result {
                Ok(Answer::Accepted) => Sent::Known,
                Ok(Answer::NotNew) => self.check_kept_descriptor(authority),
                // The authority is busy or shutting down.
                Ok(Answer::Refused { status: 500.., .. }) | Err(_) => Sent::Failed,
                Ok(Answer::Refused { .. }) => Sent::Refused,
            };
            self.emit(match result {
                Ok(answer) => RelayEvent::Answered { authority, answer },
                Err(error) => RelayEvent::Unanswered { authority, problem: error.to_string() },
            });
            // Not earlier, or an authority that never answers would be due again at once.
            self.schedule.handle_sent(self.clock.now(), place, sent);
            if self.schedule.wants_descriptor(now, content) {
                return true;
            }
        }
        false
    }

    /// Makes a descriptor and an extra-info document, which this relay's directory serves at once.
    fn make_descriptor(&mut self, now: Instant, content: Content) -> Result<(), DescriptorError> {
        let announcement = self.announcement(now, content);
        let Own { keys, certified, tap, .. } = &self.own;
        let lines =
            self.bandwidth.extra_info_lines(announcement.published, announcement.rate_bytes_s);
        let Announcement { nickname, published, .. } = announcement;
        let extra_info = ExtraInfo::new(nickname, published, &lines, keys, certified)?;
        self.descriptor = write(&announcement, Some(&extra_info), keys, certified, tap)?;
        let digested = netdoc::pieces::server_descriptors(self.descriptor.as_bytes()).next();
        let descriptor_digest =
            digested.map_or([0; 20], |piece| Sha1::digest(piece.digested).into());
        self.extra_info = extra_info.text().to_owned();
        let cache = self.fetcher.cache();
        let mut documents = dirmgr::Documents::clone(&cache.get());
        documents.own = dirmgr::documents::OwnDocuments {
            descriptor: self.descriptor.clone().into(),
            extra_info: self.extra_info.clone().into(),
            fingerprint: Some(self.fingerprint()),
            descriptor_digest,
            extra_info_digest: extra_info.sha1(),
        };
        cache.set(documents);
        Ok(())
    }

    /// Handles an authority that keeps its present descriptor. That is fine if its content is the
    /// same. Otherwise it has the same date, from before a restart, or a later one, from when this
    /// clock was ahead; the new descriptor then needs a later date.
    fn check_kept_descriptor(&mut self, authority: SocketAddr) -> Sent {
        let resource = Resource::Descriptors(vec![self.fingerprint()]);
        let Ok(text) = FETCHER.get(authority, &resource) else { return Sent::Failed };
        let theirs = descriptor::iter(&text).next().and_then(Result::ok);
        let ours = descriptor::iter(self.descriptor.as_bytes()).next().and_then(Result::ok);
        let (Some(theirs), Some(ours)) = (theirs, ours) else { return Sent::Failed };
        if have_same_content(&theirs, &ours) {
            return Sent::Known;
        }
        let now = self.clock.now();
        if self.remade.is_none_or(|at| now - at >= REMAKE_PAUSE) {
            self.remade = Some(now);
            self.published = self.published.max(theirs.published);
            self.schedule.discard_descriptor();
        }
        Sent::Failed
    }

    pub(super) fn fingerprint(&self) -> RsaId {
        self.own.certified.identity.rsa
    }

    fn announcement(&self, now: Instant, content: Content) -> Announcement {
        let Own { keys, certified, families, .. } = &self.own;
        let capabilities =
            Capabilities::of_engine(self.own.is_directory && self.testing.has_directory);
        let links_circuits = self.settings.exit.as_ref().is_some_and(|exit| exit.conflux);
        let certify = |key: &FamilyKey| key.certify(keys.ed25519.id(), certified.expires_unix_s);
        Announcement {
            nickname: self.settings.nickname,
            address: self.settings.address,
            or_port: self.own.address.port(),
            rate_bytes_s: content.limit.rate.as_byte_per_s(),
            burst_bytes_s: content.limit.burst_bytes,
            observed_bytes_s: content.observed_bytes_s,
            published: self.published,
            uptime_s: (now - self.began).as_secs(),
            contact: self.settings.contact.clone(),
            capabilities: match links_circuits {
                true => capabilities.linking_circuits(),
                false => capabilities,
            },
            exit: self.own.exit.clone(),
            overload: self.bandwidth.overload_line(self.published),
            family: self.settings.family.clone(),
            family_certs: families.iter().map(certify).collect(),
        }
    }
}

/// The date of a descriptor that is made now and replaces one of this date, in Unix seconds. Authorities compare descriptors by their
/// dates, and refuse those of the future. A date that is further ahead than they accept came from a clock that was wrong.
fn date_after(last: u64, now: u64) -> u64 {
    let next = last.saturating_add(1).max(now);
    if next - now < AHEAD_MAX_S { next } else { now }
}

/// Whether two descriptors differ only in dates, certificates and observed bandwidth.
fn have_same_content(a: &ServerDescriptor<'_>, b: &ServerDescriptor<'_>) -> bool {
    (a.nickname, a.address, a.or_port, a.ed25519, a.ntor_onion_key)
        == (b.nickname, b.address, b.or_port, b.ed25519, b.ntor_onion_key)
        && (a.bandwidth_avg_bytes_s, a.bandwidth_burst_bytes_s)
            == (b.bandwidth_avg_bytes_s, b.bandwidth_burst_bytes_s)
        && (a.contact_bytes, a.platform_bytes, a.proto, a.family_text)
            == (b.contact_bytes, b.platform_bytes, b.proto, b.family_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_of_a_wrong_clock_does_not_count() {
        let now = 1_800_000_000;
        assert_eq!(date_after(0, now), now);
        assert_eq!(date_after(now - 5, now), now);
        assert_eq!(date_after(now, now), now + 1, "two in one second");
        // The authorities have one of a clock that was two hours ahead, and keep it until there is a later one.
        assert_eq!(date_after(now + 7200, now), now + 7201);
        for days in [1, 3, 40] {
            assert_eq!(date_after(now + days * 86_400, now), now, "they would refuse it");
        }
        assert_eq!(date_after(u64::MAX, now), now);
    }
}
