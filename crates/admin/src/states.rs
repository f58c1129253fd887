//! A test of the words of states in the document of the API.

use ops::events::{ClientChange, ServiceChange};
use ops::requests::RequestProgress;
use ops::status::{
    ClientState, DaemonState, LinkState, PathState, ServiceState, SessionState, State as _,
};
use serde::Serialize;
use serde_json::Value;

/// The words of all states of a kind.
fn words<S: Serialize>(all: &[S]) -> Vec<Value> {
    all.iter().map(|state| serde_json::to_value(state).unwrap()).collect()
}

#[test]
fn the_document_lists_the_word_of_every_state() {
    let document: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
    let schemas = &document["components"]["schemas"];
    for (name, all) in [
        ("DaemonState", words(DaemonState::ALL)),
        ("SessionState", words(SessionState::ALL)),
        ("PathState", words(PathState::ALL)),
        ("LinkState", words(LinkState::ALL)),
        ("ServiceState", words(ServiceState::ALL)),
        ("ClientState", words(ClientState::ALL)),
        ("RequestProgress", words(RequestProgress::ALL)),
    ] {
        assert_eq!(schemas[name]["enum"].as_array(), Some(&all), "{name}");
    }
    let mut changes = words(LinkState::ALL);
    changes.extend(words(ServiceChange::ALL));
    changes.extend(words(ClientChange::ALL));
    assert_eq!(schemas["Event"]["properties"]["state"]["enum"].as_array(), Some(&changes));
    // No state is a free text.
    let text = document.to_string();
    assert!(!text.contains(r#""state":{"type":"string""#), "{text}");
}
