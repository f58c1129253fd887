//! A cluster under faults, in the way of Jepsen: real members of etcd, nodes, balancers and clients
//! in network namespaces of their own, with visitors and claims all the time. The test writes a
//! history of what was called and answered, and judges it after the run (`testkit::judge`):
//!
//! * who has a name is linearizable: what the clients were told (the log of each process), and what
//!   etcd says (linearizable readings through its JSON gateway), have one order;
//! * each answer to a visitor is that of the right client, and no process answers for longer than
//!   13 s after a newer process of its client has answered;
//! * 13 s after the last fault each client is reached at each node.
//!
//! `cargo xtask test cluster-faults` runs it as root. A test is a scenario: its name selects it.
//! Histories and logs are in `target/tmp/faults`.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(clippy::redundant_closure, reason = "the name of a test is made from its closure")]
#![allow(clippy::print_stdout, reason = "the lines are what a run in a cage tells, and people")]

mod busy;
mod bytes;
mod claims;
mod clients;
mod duels;
mod engine;
mod etcd;
mod history;
mod homes;
mod load;
mod nodes;
mod origin;
mod stage;
mod verdict;
mod visitor;

use std::str::FromStr;

use testkit::cage::in_cage;

/// A number of the environment, and what it is by default.
fn setting<T: FromStr>(variable: &str, default: T) -> T {
    let given = std::env::var(variable).ok();
    given.map_or(default, |given| given.parse().unwrap_or_else(|_| panic!("{variable}: {given}")))
}

#[test]
fn a_home_that_is_killed_costs_its_clients_no_visitor() {
    in_cage(|| homes::killed());
}

#[test]
fn nodes_that_are_killed_in_turn_lose_no_name() {
    in_cage(|| homes::killed_in_turn());
}

#[test]
fn visitors_notice_nothing_of_the_death_of_the_leader_of_etcd() {
    in_cage(|| engine::leader_killed());
}

#[test]
fn known_names_are_served_while_all_of_etcd_is_away() {
    in_cage(|| engine::stopped());
}

#[test]
fn nodes_leave_a_member_of_etcd_that_is_silent() {
    in_cage(|| engine::member_silent());
}

#[test]
fn known_names_are_served_while_etcd_is_full() {
    in_cage(|| engine::full());
}

#[test]
fn nodes_begin_anew_when_etcd_goes_back_to_an_older_copy() {
    in_cage(|| engine::restored());
}

#[test]
fn a_node_that_slept_does_not_answer_for_what_has_moved() {
    in_cage(|| nodes::paused());
}

#[test]
fn a_node_that_is_cut_from_etcd_alone_serves_its_clients() {
    in_cage(|| nodes::cut_from_etcd());
}

#[test]
fn two_nodes_that_are_cut_from_each_other_serve_by_the_third() {
    in_cage(|| nodes::cut_from_each_other());
}

#[test]
fn of_two_processes_with_one_name_one_wins() {
    in_cage(|| duels::many());
}

#[test]
fn each_byte_passes_between_each_entrance_and_each_home() {
    in_cage(|| bytes::of_all_pairs());
}
