//! The lists of visitors (`allow_from`, `deny_from`): which addresses may visit.

use std::net::SocketAddr;

use proto::Visitors;

/// Whether a visitor may visit a service with these lists. A visitor without an address came over a
/// Unix socket, whose file permissions decide.
pub fn permit(of_service: &Visitors, visitor: Option<SocketAddr>) -> bool {
    visitor.is_none_or(|visitor| of_service.permit(visitor.ip()))
}

/// Whether a service with these lists may be visited from every address.
pub fn are_open(of_service: &Visitors) -> bool {
    of_service.are_all()
}
