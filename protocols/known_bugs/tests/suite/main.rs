//! Every known bug is caught, by what its patch names, and only it is.

mod caught;
mod documented;
#[path = "../../../tests/schedules/mod.rs"]
mod schedules;
