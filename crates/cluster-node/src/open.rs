//! The claims and questions that the node has and that were not answered yet. Their numbers are
//! bounded by the node ([`cluster::node::CLAIMS`], [`cluster::node::WAITERS`]), which answers
//! further ones at once.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use cluster::blob::{BlobOutcome, BlobWish};
use cluster::names::{ClientName, Generation, Instance, Key};
use cluster::node::{Claimed, Located, ServerWish, Subject, Ticket};
use tokio::sync::oneshot;

use crate::mailbox::Mailbox;

/// A resource that a process of a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedClaim {
    /// The resource.
    pub key: Key,
    /// The client.
    pub client: ClientName,
    /// Its process.
    pub instance: Instance,
    /// What other nodes need to know of the service.
    pub about: String,
    /// The claim that the new claim replaces, if it is still the latest claim of the resource.
    /// `None`: the resource must be free.
    pub expected: Option<Generation>,
}

/// The answers to a batch of claims. Whatever the server does not accept is released.
#[derive(Debug)]
pub(crate) struct GivenClaims {
    claims: Vec<(Key, Claimed)>,
    mailbox: Arc<Mailbox>,
}

impl GivenClaims {
    /// The server has the answers.
    pub(crate) fn accept(mut self) -> Vec<Claimed> {
        mem::take(&mut self.claims).into_iter().map(|(_, claimed)| claimed).collect()
    }
}

impl Drop for GivenClaims {
    fn drop(&mut self) {
        let held = |(key, claimed)| match claimed {
            Claimed::Held(generation) => Some((key, generation)),
            Claimed::Taken { .. } | Claimed::Away => None,
        };
        let held: Vec<_> = mem::take(&mut self.claims).into_iter().filter_map(held).collect();
        if !held.is_empty() {
            self.mailbox.release(held);
        }
    }
}

/// A batch of claims whose answers are not complete.
#[derive(Debug)]
struct OpenBatch {
    given: GivenClaims,
    /// The number of claims without an answer.
    open: usize,
    reply: oneshot::Sender<GivenClaims>,
}

/// A batch of wishes about bytes of the server whose outcomes are not complete.
#[derive(Debug)]
struct OpenBlobs {
    outcomes: Vec<BlobOutcome>,
    /// The number of wishes without an outcome.
    open: usize,
    reply: oneshot::Sender<Vec<BlobOutcome>>,
}

/// What the node will answer.
#[derive(Debug)]
pub(crate) struct OpenQuestions {
    mailbox: Arc<Mailbox>,
    /// The number of the latest ticket or batch.
    numbers: u64,
    batches: HashMap<u64, OpenBatch>,
    /// The batch of a claim, and its place there.
    claims: HashMap<Ticket, (u64, usize)>,
    /// The claims that are held, and whose batch is not complete.
    held: HashMap<(Key, Generation), (u64, usize)>,
    finds: HashMap<Ticket, oneshot::Sender<Located>>,
    blob_batches: HashMap<u64, OpenBlobs>,
    /// The batch of a wish, and its place there.
    blobs: HashMap<Ticket, (u64, usize)>,
}

impl OpenQuestions {
    /// Nothing was asked yet.
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self {
            mailbox,
            numbers: 0,
            batches: HashMap::new(),
            claims: HashMap::new(),
            held: HashMap::new(),
            finds: HashMap::new(),
            blob_batches: HashMap::new(),
            blobs: HashMap::new(),
        }
    }

    const fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Enters a batch, and returns the wishes of the node.
    pub(crate) fn claim(
        &mut self,
        wanted: Vec<WantedClaim>,
        reply: oneshot::Sender<GivenClaims>,
    ) -> Vec<ServerWish> {
        if reply.is_closed() {
            // The server does not wait any more.
            return Vec::new();
        }
        let batch = self.number();
        let away = |wanted: &WantedClaim| (wanted.key.clone(), Claimed::Away);
        let claims = wanted.iter().map(away).collect();
        let given = GivenClaims { claims, mailbox: Arc::clone(&self.mailbox) };
        let open = wanted.len();
        self.batches.insert(batch, OpenBatch { given, open, reply });
        let enter = |(place, wanted)| {
            let WantedClaim { key, client, instance, about, expected } = wanted;
            let ticket = Ticket(self.number());
            self.claims.insert(ticket, (batch, place));
            ServerWish::Claim { ticket, key, client, instance, about, expected }
        };
        wanted.into_iter().enumerate().map(enter).collect()
    }

    /// Enters a question, and returns the wish of the node.
    pub(crate) fn find(
        &mut self,
        subject: Subject,
        reply: oneshot::Sender<Located>,
    ) -> Option<ServerWish> {
        if reply.is_closed() {
            return None;
        }
        let ticket = Ticket(self.number());
        self.finds.insert(ticket, reply);
        Some(ServerWish::Find { ticket, subject })
    }

    /// Enters wishes about bytes of the server, and returns the wishes of the node.
    pub(crate) fn blobs(
        &mut self,
        batch: Vec<BlobWish>,
        reply: oneshot::Sender<Vec<BlobOutcome>>,
    ) -> Vec<ServerWish> {
        if reply.is_closed() {
            return Vec::new();
        }
        let number = self.number();
        let open = batch.len();
        let outcomes = vec![BlobOutcome::Away { may_be_done: false }; open];
        self.blob_batches.insert(number, OpenBlobs { outcomes, open, reply });
        let enter = |(place, wish)| {
            let ticket = Ticket(self.number());
            self.blobs.insert(ticket, (number, place));
            ServerWish::Blob { ticket, wish }
        };
        batch.into_iter().enumerate().map(enter).collect()
    }

    /// What has become of a wish. The outcomes of a batch are given when all are there.
    pub(crate) fn blob(&mut self, ticket: Ticket, outcome: BlobOutcome) {
        let Some((number, place)) = self.blobs.remove(&ticket) else { return };
        let Some(batch) = self.blob_batches.get_mut(&number) else { return };
        if let Some(given) = batch.outcomes.get_mut(place) {
            *given = outcome;
        }
        batch.open = batch.open.saturating_sub(1);
        if batch.open == 0
            && let Some(batch) = self.blob_batches.remove(&number)
        {
            let _ = batch.reply.send(batch.outcomes);
        }
    }

    /// The node has answered a claim. The answers to a batch are given when all are there.
    pub(crate) fn claimed(&mut self, ticket: Ticket, claimed: Claimed) {
        let Some((number, place)) = self.claims.remove(&ticket) else { return };
        let Some(batch) = self.batches.get_mut(&number) else { return };
        batch.open = batch.open.saturating_sub(1);
        if let Some((key, answer)) = batch.given.claims.get_mut(place) {
            if let Claimed::Held(generation) = claimed {
                self.held.insert((key.clone(), generation), (number, place));
            }
            *answer = claimed;
        }
        if batch.open > 0 {
            return;
        }
        let Some(batch) = self.batches.remove(&number) else { return };
        for (key, claimed) in &batch.given.claims {
            if let Claimed::Held(generation) = claimed {
                self.held.remove(&(key.clone(), *generation));
            }
        }
        // Where nobody waits, the drop of what comes back releases the claims.
        let _ = batch.reply.send(batch.given);
    }

    /// The node has answered a question.
    pub(crate) fn found(&mut self, ticket: Ticket, located: Located) {
        if let Some(reply) = self.finds.remove(&ticket) {
            let _ = reply.send(located);
        }
    }

    /// A claim was lost. Returns whether the server knows of the claim: a claim whose batch is not
    /// complete is answered with [`Claimed::Away`] instead.
    pub(crate) fn lost(&mut self, key: &Key, generation: Generation) -> bool {
        self.revise(key, generation, Claimed::Away)
    }

    /// A claim has a new number. Returns whether the server knows of the claim.
    pub(crate) fn renumbered(&mut self, key: &Key, former: Generation, now: Generation) -> bool {
        let Some(at) = self.held.get(&(key.clone(), former)).copied() else { return true };
        self.held.insert((key.clone(), now), at);
        self.revise(key, former, Claimed::Held(now))
    }

    fn revise(&mut self, key: &Key, generation: Generation, now: Claimed) -> bool {
        let Some((number, place)) = self.held.remove(&(key.clone(), generation)) else {
            return true;
        };
        let batch = self.batches.get_mut(&number);
        if let Some((_, answer)) = batch.and_then(|batch| batch.given.claims.get_mut(place)) {
            *answer = now;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use cluster::names::{Class, PortProtocol};
    use cluster::node::NodeInput;

    use super::*;

    fn key(port: u16) -> Key {
        Key::Port(PortProtocol::Tcp, Class::Public, port)
    }

    fn wanted(port: u16) -> WantedClaim {
        let client = ClientName::new("c").unwrap();
        let about = String::new();
        WantedClaim { key: key(port), client, instance: Instance(1), about, expected: None }
    }

    fn tickets(wishes: &[ServerWish]) -> Vec<Ticket> {
        let ticket = |wish: &ServerWish| {
            let ServerWish::Claim { ticket, .. } = wish else { panic!("{wish:?}") };
            *ticket
        };
        wishes.iter().map(ticket).collect()
    }

    fn released(mailbox: &Mailbox) -> Vec<(Key, Generation)> {
        let wishes = mailbox.take().into_inputs().into_iter().flat_map(|input| {
            let NodeInput::Wishes(wishes) = input else { panic!("{input:?}") };
            wishes
        });
        let release = |wish| {
            let ServerWish::Release { key, generation } = wish else { panic!("{wish:?}") };
            (key, generation)
        };
        wishes.map(release).collect()
    }

    #[test]
    fn an_answer_that_nobody_reads_is_released() {
        let mailbox = Arc::new(Mailbox::default());
        let mut open = OpenQuestions::new(Arc::clone(&mailbox));
        let (reply, given) = oneshot::channel();
        let [first, second] = tickets(&open.claim(vec![wanted(1), wanted(2)], reply))[..] else {
            panic!()
        };
        open.claimed(first, Claimed::Held(Generation(5)));
        open.claimed(second, Claimed::Away);
        // The answers were given, and the future that would read them ends.
        drop(given);
        assert_eq!(released(&mailbox), [(key(1), Generation(5))]);

        // The future has ended before the answer.
        let (reply, given) = oneshot::channel();
        let asked = tickets(&open.claim(vec![wanted(3)], reply));
        drop(given);
        open.claimed(asked[0], Claimed::Held(Generation(6)));
        assert_eq!(released(&mailbox), [(key(3), Generation(6))]);

        // The future has ended before the node has seen the claim.
        let (reply, _) = oneshot::channel();
        assert!(open.claim(vec![wanted(4)], reply).is_empty());
    }

    #[test]
    fn the_answer_to_a_batch_is_as_of_its_last_claim() {
        let mailbox = Arc::new(Mailbox::default());
        let mut open = OpenQuestions::new(Arc::clone(&mailbox));
        let (reply, mut given) = oneshot::channel();
        let asked = tickets(&open.claim((1..=3).map(wanted).collect(), reply));
        open.claimed(asked[0], Claimed::Held(Generation(5)));
        open.claimed(asked[1], Claimed::Held(Generation(6)));
        assert!(!open.lost(&key(1), Generation(5)));
        assert!(!open.renumbered(&key(2), Generation(6), Generation(7)));
        assert!(!open.renumbered(&key(2), Generation(7), Generation(8)));
        assert!(open.lost(&key(9), Generation(1)));
        assert!(given.try_recv().is_err());
        open.claimed(asked[2], Claimed::Held(Generation(9)));
        let answers = given.try_recv().unwrap().accept();
        let held = |number| Claimed::Held(Generation(number));
        assert_eq!(answers, [Claimed::Away, held(8), held(9)]);
        // The server knows of the claims.
        assert!(
            open.lost(&key(2), Generation(8))
                && open.renumbered(&key(3), Generation(9), Generation(10))
        );
        assert!(released(&mailbox).is_empty());
    }
}
