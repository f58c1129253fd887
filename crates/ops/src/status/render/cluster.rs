//! The cluster of a server as readable text.

use super::super::{Cluster, ClusterNode};
use crate::term::{Column, Drawn, Screen, Sheet, Table, duration, natural};

/// The cluster alone, as text.
pub fn render_cluster(cluster: &Cluster, screen: Screen) -> Drawn {
    let mut sheet = Sheet::new(screen);
    cluster_table(&mut sheet, cluster);
    sheet.finish()
}

/// A line about this node, and the table of the nodes.
pub(super) fn cluster_table(sheet: &mut Sheet, cluster: &Cluster) {
    let Cluster { name, node, epoch, member, ready, engine_heard_seconds, nodes, report } = cluster;
    let is = match (member, epoch) {
        (true, Some(epoch)) => format!("a member (epoch {epoch})"),
        (false, Some(epoch)) => format!("cut off from the engine (epoch {epoch})"),
        (_, None) => "no member yet".to_owned(),
    };
    let ready = if *ready { "" } else { ", visitors should go to other nodes" };
    let heard = match engine_heard_seconds {
        // Renewals are 3 s apart.
        Some(seconds @ 0..=3) => format!(", engine heard {seconds}s ago"),
        Some(seconds) => format!(", engine silent for {}", duration(*seconds)),
        None => ", the engine has not answered yet".to_owned(),
    };
    sheet.line(format_args!("node {node} of cluster {name}: {is}{heard}{ready}"));
    if let Some(report) = report.as_ref().filter(|_| !member) {
        sheet.line(format_args!("{report}"));
    }
    if nodes.is_empty() {
        return;
    }
    let columns = vec![
        Column::new("node").text(),
        Column::new("zone").worth(40),
        Column::new("links"),
        Column::new("known for").worth(50),
        Column::new("program").worth(20),
        Column::new("state"),
    ];
    let mut table = Table::new(columns);
    let mut nodes: Vec<_> = nodes.iter().collect();
    nodes.sort_by(|a, b| natural(&a.name, &b.name));
    for ClusterNode { name, zone, epoch: _, program, draining, links, clients: _, seconds } in nodes
    {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let state = if *draining { "draining" } else { "up" };
        table.row([
            name.clone(),
            or_none(zone),
            links.to_string(),
            duration(*seconds),
            or_none(program),
            state.to_owned(),
        ]);
    }
    sheet.gap();
    sheet.indented(|sheet| sheet.table(&table));
}

#[cfg(test)]
mod tests {
    use super::super::super::sample;
    use super::super::render;
    use super::*;
    use crate::status::Status;

    #[test]
    fn the_nodes_of_a_cluster_are_shown() {
        let node = |name: &str, seconds| ClusterNode {
            name: name.into(),
            zone: Some("fra".into()),
            program: Some("0.1.0".into()),
            links: 12,
            seconds,
            ..ClusterNode::default()
        };
        let lost = ClusterNode { zone: None, program: None, draining: true, ..node("fra10", 5) };
        let cluster = Cluster {
            name: "prod".into(),
            node: "fra1".into(),
            epoch: Some(7),
            member: true,
            ready: true,
            engine_heard_seconds: Some(2),
            nodes: vec![lost, node("fra2", 90)],
            report: Some("this node has joined the cluster (epoch 7)".into()),
        };
        let status = Status { cluster: Some(cluster.clone()), ..sample() };
        let expected = "
node fra1 of cluster prod: a member (epoch 7), engine heard 2s ago

  node   zone  links  known for  program  state
  fra2   fra   12     1m30s      0.1.0    up
  fra10  -     12     5s         -        draining
";
        let text = shown(&status);
        assert!(text.contains(expected), "{text}");
        let away = Cluster {
            member: false,
            ready: false,
            engine_heard_seconds: Some(70),
            nodes: Vec::new(),
            ..cluster
        };
        let text = shown(&Status { cluster: Some(away.clone()), ..sample() });
        let expected = "
node fra1 of cluster prod: cut off from the engine (epoch 7), engine silent for 1m10s, visitors should go to other nodes
this node has joined the cluster (epoch 7)
";
        assert!(text.contains(expected), "{text}");
        let new = Cluster { epoch: None, engine_heard_seconds: None, report: None, ..away };
        let text = shown(&Status { cluster: Some(new), ..sample() });
        assert!(text.contains("no member yet, the engine has not answered yet"), "{text}");
    }

    fn shown(status: &Status) -> String {
        render(status, None, Screen::PLAIN).to_string()
    }
}
