//! Round-trip times between regions of public clouds.
//!
//! Average ping times in milliseconds between virtual machines, as published with the simulator of *fantoch* (V. Enes
//! et al., *State-Machine Replication for Planet-Scale Systems*, EuroSys 2020), github.com/vitorenesduarte/fantoch.
//! Distances do not change; providers' routes do, so take them for the shape of the world rather than for today's
//! figures.

/// Regions and the round-trip time of each pair, in milliseconds.
pub(super) struct Regions {
    /// Their names, in the order in which replicas get them.
    pub(super) names: &'static [&'static str],
    /// Row `i` has the times to the regions before `i`.
    pub(super) rtt_ms: &'static [&'static [f64]],
}

/// Amazon Web Services, measured on 5 June 2020 (fantoch, `latency_aws/2020_06_05`).
pub(super) const AWS: Regions = Regions {
    names: &[
        "us-east-1",
        "eu-central-1",
        "ap-northeast-1",
        "us-west-1",
        "ap-southeast-1",
        "ca-central-1",
        "ap-southeast-2",
        "ap-south-1",
    ],
    rtt_ms: &[
        &[],
        &[85.622],
        &[152.424, 243.942],
        &[59.912, 145.572, 111.696],
        &[235.752, 177.981, 77.040, 181.314],
        &[15.116, 99.503, 154.750, 78.375, 221.262],
        &[198.031, 281.921, 104.075, 137.104, 90.457, 195.684],
        &[181.765, 111.508, 136.714, 231.051, 63.087, 196.614, 143.296],
    ],
};

/// Google Cloud, measured by 2019 (fantoch, `latency` and `latency_gcp`).
pub(super) const GCP: Regions = Regions {
    names: &[
        "us-central1",
        "europe-west4",
        "asia-east1",
        "us-west1",
        "asia-southeast1",
        "us-east1",
        "southamerica-east1",
        "australia-southeast1",
        "europe-west2",
    ],
    rtt_ms: &[
        &[],
        &[108.463],
        &[152.267, 259.837],
        &[39.580, 143.680, 118.646],
        &[184.192, 292.871, 50.564, 159.027],
        &[36.347, 96.352, 184.796, 66.815, 216.783],
        &[144.844, 210.844, 289.323, 176.920, 321.539, 117.364],
        &[
            172.359, 280.247, 128.026, 160.691, 169.632, 199.219, 304.393,
        ],
        &[
            99.252, 9.658, 252.085, 134.950, 283.088, 88.616, 205.405, 269.506,
        ],
    ],
};
