//! Every known bug is caught, by the run that its patch names, and only it is.

mod caught;
mod documented;
