//! The conformance suite, for each protocol.

mod eventual {
    dkvf_sim::conformance!(dkvf_protocols::eventual::Eventual);
}

mod cops {
    dkvf_sim::conformance!(dkvf_protocols::cops::Cops);
}

mod gentlerain {
    dkvf_sim::conformance!(dkvf_protocols::gentlerain::GentleRain);
}

mod causalspartan {
    dkvf_sim::conformance!(dkvf_protocols::causalspartan::CausalSpartan);
}
