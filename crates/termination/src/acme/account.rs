//! The account at the authority, which is created at the first order and stored in `account.json`.

use instant_acme::{Account, AccountCredentials, ExternalAccountKey, NewAccount};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::http::{Asked, Http};
use super::{Arc, Authority};
use crate::ledger::Scope;
use crate::shared::{ExpectedValue, SealedStore, SharedPlace, StoreAway};
use crate::{AUDIT, plain};

/// The content of the file.
#[derive(Deserialize, Serialize)]
struct Kept {
    directory: String,
    contacts: Vec<String>,
    credentials: AccountCredentials,
}

/// Opens the stored account, or creates a new account. `anew`: the authority does not know the
/// stored account, so a new account replaces it.
pub(super) async fn open(
    authority: &Authority,
    shared: Option<&SealedStore>,
    asked: &Arc<Asked>,
    anew: bool,
) -> Result<Account, Failure> {
    if let Some(shared) = shared.filter(|_| !anew) {
        adopt(authority, shared).await?;
    }
    let account = open_kept(authority, asked, anew).await?;
    if let Some(shared) = shared {
        give(authority, shared).await;
    }
    Ok(account)
}

/// Writes the account of the cluster into the file of this node: the nodes have one account, whose
/// limits at the authority hold for all of them.
async fn adopt(authority: &Authority, shared: &SealedStore) -> Result<(), Failure> {
    let found = shared.read_one(place(authority)).await;
    let found = found.map_err(|away| Failure::new(Scope::Authority, away.to_string()))?;
    let Some(found) = found else { return Ok(()) };
    match found.opened {
        Ok(opened) if serde_json::from_slice::<Kept>(&opened.plain).is_ok() => {
            let kept = authority.store.keep_account(&opened.plain);
            kept.map_err(|error| Failure::file(&error))
        }
        Ok(_) => {
            tracing::warn!("the account in the cluster cannot be read, and is replaced");
            Ok(())
        }
        Err(error) => {
            tracing::warn!("the account in the cluster is not used, and is replaced: {error}");
            Ok(())
        }
    }
}

/// Writes the account of this node into the store of the cluster. It is written with each start of
/// a node that orders, so a failure is no more than a log line.
async fn give(authority: &Authority, shared: &SealedStore) {
    let Ok(Some(text)) = authority.store.account() else { return };
    if shared.write(place(authority), &text, ExpectedValue::Any).await.is_err() {
        tracing::warn!("the account at the certificate authority is not shared: {StoreAway}");
    }
}

fn place(authority: &Authority) -> SharedPlace {
    SharedPlace::Account(authority.store.account_name().into())
}

/// Opens the account of the file, or creates a new account.
async fn open_kept(
    authority: &Authority,
    asked: &Arc<Asked>,
    anew: bool,
) -> Result<Account, Failure> {
    let http = Http { tls: Arc::clone(&authority.tls), asked: Arc::clone(asked) };
    let builder = Account::builder_with_http(Box::new(http));
    let contacts: Vec<String> = authority.acme.contacts.iter().map(|to| contact(to)).collect();
    let uris: Vec<&str> = contacts.iter().map(String::as_str).collect();
    let directory = authority.acme.directory.clone();

    let kept = if anew { None } else { kept(authority)? };
    if let Some(kept) = kept {
        let account = builder
            .from_credentials(kept.credentials)
            .await
            .map_err(|error| Failure::of("opening the account", &error))?;
        if kept.contacts != contacts {
            change_contacts(authority, &account, &uris, contacts.clone()).await;
        }
        return Ok(account);
    }
    let new =
        NewAccount { contact: &uris, terms_of_service_agreed: true, only_return_existing: false };
    let binding = authority.acme.binding.as_ref();
    let binding = binding.map(|of| ExternalAccountKey::new(of.id.clone(), &of.key));
    let made = builder.create(&new, directory.clone(), binding.as_ref()).await;
    let (account, credentials) = made.map_err(|error| {
        // Without an account every order fails.
        Failure { scope: Scope::Authority, ..Failure::of("making an account", &error) }
    })?;
    write(authority, &Kept { directory, contacts: contacts.clone(), credentials })?;
    let url = plain(account.id());
    tracing::info!(target: AUDIT, "an account was made at the certificate authority: {url}");
    Ok(account)
}

/// Reads the file. `None`: there is no file, or it belongs to another directory.
fn kept(authority: &Authority) -> Result<Option<Kept>, Failure> {
    let Some(text) = authority.store.account().map_err(|error| Failure::file(&error))? else {
        return Ok(None);
    };
    let kept: Kept = serde_json::from_slice(&text).map_err(|error| {
        let path = authority.store.account_path();
        let text = format!(
            "{}: {error} (hint: move the file away, and a new account is made)",
            path.display()
        );
        Failure::new(Scope::Authority, text)
    })?;
    Ok(Some(kept).filter(|kept| kept.directory == authority.acme.directory))
}

/// Sends the new contacts to the authority. Orders do not depend on them, so a failure is logged
/// and retried at the next start or reload.
async fn change_contacts(
    authority: &Authority,
    account: &Account,
    uris: &[&str],
    contacts: Vec<String>,
) {
    let changed = match account.update_contacts(uris).await {
        Ok(()) => again(authority, contacts),
        Err(error) => Err(Failure::of("changing the contacts of the account", &error)),
    };
    if let Err(failure) = changed {
        tracing::warn!("the certificate authority keeps the old contacts: {}", failure.text);
    }
}

/// Writes the file with other contacts.
fn again(authority: &Authority, contacts: Vec<String>) -> Result<(), Failure> {
    match kept(authority)? {
        Some(kept) => write(authority, &Kept { contacts, ..kept }),
        None => Ok(()),
    }
}

fn write(authority: &Authority, kept: &Kept) -> Result<(), Failure> {
    let text = serde_json::to_vec_pretty(kept)
        .map_err(|error| Failure::new(Scope::Authority, error.to_string()))?;
    authority.store.keep_account(&text).map_err(|error| Failure::file(&error))
}

/// A contact as a URI.
fn contact(to: &str) -> String {
    if to.contains(':') { to.to_owned() } else { format!("mailto:{to}") }
}
