//! `tunnel generate`: what one needs before the first start.
//!
//! `certs` decides what to make, `folder` writes it and never over what is there, `advice` says
//! what goes where.

mod advice;
mod certs;
mod folder;
mod token;

pub(crate) use certs::{Order, certs};
pub(crate) use token::hash;
