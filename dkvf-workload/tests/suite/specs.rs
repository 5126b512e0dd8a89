//! Property files and built-in workloads.

use dkvf_workload::{
    InsertOrder, KeyNaming, Lengths, Mix, Properties, PropertyError, Requests, ValueSize,
    WorkloadSpec,
};

fn from_text(text: &str) -> Result<WorkloadSpec, PropertyError> {
    WorkloadSpec::from_properties(&Properties::parse("w.properties", text.as_bytes())?)
}

/// A specification with `lines` beside the one property that has no default.
fn with(lines: &str) -> WorkloadSpec {
    from_text(&format!("recordcount=1000\n{lines}")).unwrap()
}

#[track_caller]
fn assert_refused(lines: &str, message: &str) {
    match from_text(&format!("recordcount=1000\n{lines}")) {
        Err(error) => assert_eq!(error.to_string(), message),
        Ok(spec) => panic!("{spec:?}"),
    }
}

fn mix(weights: [f64; 7]) -> Mix {
    let [
        read,
        update,
        insert,
        scan,
        read_modify_write,
        amplified_insert,
        read_only,
    ] = weights;
    Mix {
        read,
        update,
        insert,
        scan,
        read_modify_write,
        amplified_insert,
        read_only,
    }
}

const ZIPFIAN: Requests = Requests::Zipfian {
    theta: 0.99,
    scrambled: true,
};

#[test]
fn defaults_are_those_of_ycsb() {
    let spec = with("");
    assert_eq!(spec.name, "w.properties");
    assert_eq!(spec.table, "usertable");
    assert_eq!(spec.record_count, 1000);
    assert_eq!(spec.operation_count, None);
    assert_eq!((spec.insert_start, spec.insert_count), (0, 1000));
    assert!(matches!(spec.value_size, ValueSize::Constant(1000)));
    assert_eq!(spec.mix, mix([0.95, 0.05, 0.0, 0.0, 0.0, 0.0, 0.0]));
    assert_eq!(spec.amplification, 100);
    assert_eq!(spec.read_only_keys, 3);
    assert_eq!(spec.requests, Requests::Uniform);
    assert!(matches!(
        spec.scan_length,
        Lengths::Uniform { min: 1, max: 1000 }
    ));
    assert_eq!(
        spec.naming,
        KeyNaming {
            order: InsertOrder::Hashed,
            zero_padding: 1
        }
    );
    assert_eq!(spec.max_execution_time_s, None);
    assert_eq!(spec.target_ops_s, None);
    assert_eq!(spec.thread_count, 1);
    assert_eq!(spec.insertion_retry_limit, 0);
    assert_eq!(spec.insertion_retry_interval_s, 3);
    assert_eq!(spec.warnings, [""; 0]);
}

#[test]
fn built_in_workloads_are_the_published_ones() {
    let latest = Requests::Latest { theta: 0.99 };
    for (name, weights, requests) in [
        ("a", [0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0], ZIPFIAN),
        ("b", [0.95, 0.05, 0.0, 0.0, 0.0, 0.0, 0.0], ZIPFIAN),
        ("c", [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], ZIPFIAN),
        ("d", [0.95, 0.0, 0.05, 0.0, 0.0, 0.0, 0.0], latest),
        ("e", [0.0, 0.0, 0.05, 0.95, 0.0, 0.0, 0.0], ZIPFIAN),
        ("f", [0.5, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0], ZIPFIAN),
        (
            "amplified",
            [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
            Requests::Uniform,
        ),
    ] {
        let spec = WorkloadSpec::builtin(name).unwrap();
        assert_eq!(spec.name, name);
        assert_eq!(spec.mix, mix(weights), "{name}");
        assert_eq!(spec.requests, requests, "{name}");
        assert_eq!(spec.record_count, 1000);
        assert_eq!(spec.operation_count, Some(1000));
        assert_eq!(spec.warnings, [""; 0]);
    }
    let e = WorkloadSpec::builtin("e").unwrap();
    assert!(matches!(
        e.scan_length,
        Lengths::Uniform { min: 1, max: 100 }
    ));
    assert_eq!(WorkloadSpec::builtin_names().count(), 7);
    assert!(WorkloadSpec::builtin("g").is_none());
}

#[test]
fn overrides_change_built_in_workloads_and_files_alike() {
    let overrides = [("recordcount", "50"), ("valuesize", "64")];
    let spec = WorkloadSpec::load("a", overrides).unwrap();
    assert_eq!(spec.record_count, 50);
    assert!(matches!(spec.value_size, ValueSize::Constant(64)));
    let error = WorkloadSpec::load("a", [("valuesize", "15")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "-p: valuesize is \"15\"; allowed: a whole number from 16 to 16777216"
    );
    let error = WorkloadSpec::load("no/such/workload", []).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot read no/such/workload: "),
        "{error}"
    );
}

/// Texts in the form of the files that YCSB ships: comments, trailing blanks,
/// properties in any order.
const SHIPPED: &[(&str, &str)] = &[
    (
        "workloada",
        "# licence                     \n#   Read/update ratio: 50/50\n\nrecordcount=1000\noperationcount=1000\nworkload=site.ycsb.workloads.CoreWorkload\n\nreadallfields=true\n\nreadproportion=0.5\nupdateproportion=0.5\nscanproportion=0\ninsertproportion=0\n\nrequestdistribution=zipfian\n\n",
    ),
    (
        "workloadb",
        "recordcount=1000\noperationcount=1000\nworkload=site.ycsb.workloads.CoreWorkload\nreadallfields=true\nreadproportion=0.95\nupdateproportion=0.05\nscanproportion=0\ninsertproportion=0\nrequestdistribution=zipfian\n",
    ),
    (
        "workloadc",
        "recordcount=1000\r\noperationcount=1000\r\nworkload=com.yahoo.ycsb.workloads.CoreWorkload\r\nreadallfields=true\r\nreadproportion=1\r\nupdateproportion=0\r\nscanproportion=0\r\ninsertproportion=0\r\nrequestdistribution=zipfian\r\n",
    ),
    (
        "workloadd",
        "recordcount=1000\noperationcount=1000\nworkload=site.ycsb.workloads.CoreWorkload\nreadallfields=true\nreadproportion=0.95\nupdateproportion=0\nscanproportion=0\ninsertproportion=0.05\nrequestdistribution=latest\n",
    ),
    (
        "workloade",
        "recordcount=1000\noperationcount=1000\nworkload=site.ycsb.workloads.CoreWorkload\nreadallfields=true\nreadproportion=0\nupdateproportion=0\nscanproportion=0.95\ninsertproportion=0.05\nrequestdistribution=zipfian\nmaxscanlength=100\nscanlengthdistribution=uniform\n",
    ),
    (
        "workloadf",
        "recordcount=1000\noperationcount=1000\nworkload=site.ycsb.workloads.CoreWorkload\nreadallfields=true\nreadproportion=0.5\nupdateproportion=0\nscanproportion=0\ninsertproportion=0\nreadmodifywriteproportion=0.5\nrequestdistribution=zipfian\n",
    ),
];

#[test]
fn the_files_that_ycsb_ships_equal_the_built_in_workloads() {
    for (file, text) in SHIPPED {
        let spec = from_text(text).unwrap();
        let builtin = WorkloadSpec::builtin(file.strip_prefix("workload").unwrap()).unwrap();
        assert_eq!(spec.mix, builtin.mix, "{file}");
        assert_eq!(spec.requests, builtin.requests, "{file}");
        assert_eq!(spec.scan_length.max(), builtin.scan_length.max(), "{file}");
        assert_eq!(spec.operation_count, builtin.operation_count, "{file}");
        assert_eq!(spec.warnings, [""; 0], "{file}");
    }
}

#[test]
fn a_template_with_every_property_parses_and_names_what_has_no_effect() {
    let spec = from_text(
        "workload=site.ycsb.workloads.CoreWorkload\nrecordcount=1000000\noperationcount=3000000\n\
         #insertcount=\ninsertstart=0\nfieldcount=10\nfieldlength=100\nreadallfields=true\n\
         writeallfields=false\nfieldlengthdistribution=constant\nreadproportion=0.95\n\
         updateproportion=0.05\ninsertproportion=0\nreadmodifywriteproportion=0\n\
         scanproportion=0\nmaxscanlength=1000\nmaxscanrate=0\nscanoptimelimit=0\n\
         discardscannedrecord=false\nscanlengthdistribution=uniform\ninsertorder=hashed\n\
         requestdistribution=zipfian\nhotspotdatafraction=0.2\nhotspotopnfraction=0.8\n\
         #maxexecutiontime= \ntable=usertable\n#columnfamily=\nmeasurementtype=histogram\n\
         # measurement.histogram.verbose = false\nhistogram.buckets=1000\n\
         timeseries.granularity=1000\n",
    )
    .unwrap();
    assert_eq!(spec.operation_count, Some(3_000_000));
    let warned: Vec<_> = spec
        .warnings
        .iter()
        .map(|warning| warning.split(": ").nth(1).unwrap())
        .collect();
    assert_eq!(
        warned,
        [
            "discardscannedrecord",
            "histogram.buckets",
            "maxscanrate",
            "measurementtype",
            "scanoptimelimit",
            "timeseries.granularity",
            "writeallfields",
        ]
    );
}

#[test]
fn every_property_has_its_effect() {
    let spec = with(
        "readallfields=true\nwriteallfields=true\n\
         operationcount=77\ninsertstart=100\ninsertcount=50\ntable=t\ninsertproportion=2\n\
         scanproportion=3\nreadmodifywriteproportion=4\nampinsertproportion=5\nampfactor=6\n\
         rotxproportion=18\nrotxkeynumber=19\n\
         minscanlength=7\nmaxscanlength=8\nscanlengthdistribution=zipfian\ninsertorder=ordered\n\
         zeropadding=12\nmaxexecutiontime=13\ntarget=14.5\nthreadcount=15\n\
         core_workload_insertion_retry_limit=16\ncore_workload_insertion_retry_interval=17\n",
    );
    assert_eq!(spec.operation_count, Some(77));
    assert_eq!((spec.insert_start, spec.insert_count), (100, 50));
    assert_eq!(spec.table, "t");
    assert_eq!(spec.mix, mix([0.95, 0.05, 2.0, 3.0, 4.0, 5.0, 18.0]));
    assert_eq!(spec.amplification, 6);
    assert_eq!(spec.read_only_keys, 19);
    assert!(matches!(
        spec.scan_length,
        Lengths::Zipfian { min: 7, max: 8, .. }
    ));
    assert_eq!(spec.naming.order, InsertOrder::Ordered);
    assert_eq!(spec.naming.zero_padding, 12);
    assert_eq!(spec.max_execution_time_s, Some(13));
    assert_eq!(spec.target_ops_s, Some(14.5));
    assert_eq!(spec.thread_count, 15);
    assert_eq!(spec.insertion_retry_limit, 16);
    assert_eq!(spec.insertion_retry_interval_s, 17);
    assert_eq!(spec.warnings, [""; 0]);
}

#[test]
fn value_sizes_are_fields_times_length_unless_one_size_is_given() {
    let size = |lines| match with(lines).value_size {
        ValueSize::Constant(bytes) => bytes,
        fields => panic!("{fields:?}"),
    };
    assert_eq!(size("fieldcount=3\nfieldlength=50"), 150);
    assert_eq!(size("fieldcount=1\nfieldlength=5"), 16, "a tag needs room");
    assert_eq!(
        size("fieldcount=3\nfieldlengthdistribution=uniform\nvaluesize=64"),
        64
    );
    assert!(matches!(
        with("fieldlengthdistribution=uniform\nminfieldlength=20").value_size,
        ValueSize::Fields {
            count: 10,
            bytes: Lengths::Uniform { min: 20, max: 100 }
        }
    ));
    assert!(matches!(
        with("fieldlengthdistribution=zipfian").value_size,
        ValueSize::Fields {
            count: 10,
            bytes: Lengths::Zipfian {
                min: 1,
                max: 100,
                ..
            }
        }
    ));
    assert_refused(
        "fieldlengthdistribution=histogram",
        "w.properties:2: fieldlengthdistribution is \"histogram\"; \
         allowed: constant, uniform, zipfian; histogram files are not read",
    );
    assert_refused(
        "fieldcount=1000000\nfieldlength=1000000",
        "w.properties:3: fieldlength is \"1000000\"; \
         allowed: fieldcount times fieldlength up to 16777216",
    );
}

#[test]
fn request_distributions_take_their_parameters() {
    for (lines, requests) in [
        ("requestdistribution=uniform", Requests::Uniform),
        ("requestdistribution=sequential", Requests::Sequential),
        ("requestdistribution=zipfian", ZIPFIAN),
        (
            "requestdistribution=zipfian\nzipfianconstant=1.2\nzipfianscrambled=false",
            Requests::Zipfian {
                theta: 1.2,
                scrambled: false,
            },
        ),
        (
            "requestdistribution=latest\nzipfianconstant=0",
            Requests::Latest { theta: 0.0 },
        ),
        (
            "requestdistribution=hotspot",
            Requests::Hotspot {
                data_fraction: 0.2,
                operation_fraction: 0.8,
            },
        ),
        (
            "requestdistribution=exponential\nexponential.percentile=90\nexponential.frac=0.5",
            Requests::Exponential {
                share: 0.9,
                fraction: 0.5,
            },
        ),
        (
            "requestdistribution=exponential",
            Requests::Exponential {
                share: 0.95,
                fraction: 0.857_142_857_1,
            },
        ),
    ] {
        assert_eq!(with(lines).requests, requests, "{lines}");
    }
}

#[test]
fn wrong_values_are_refused_with_place_and_what_is_allowed() {
    assert_refused(
        "operationcount=many",
        "w.properties:2: operationcount is \"many\"; \
         allowed: a whole number from 0 to 18446744073709551615",
    );
    assert_refused(
        "insertstart=1001",
        "w.properties:2: insertstart is \"1001\"; allowed: a whole number from 0 to 1000",
    );
    assert_refused(
        "insertstart=900\ninsertcount=101",
        "w.properties:3: insertcount is \"101\"; allowed: a whole number from 0 to 100",
    );
    assert_refused(
        "readproportion=-1",
        "w.properties:2: readproportion is \"-1\"; allowed: a number from 0 to 1000000000",
    );
    assert_refused(
        "requestdistribution=gaussian",
        "w.properties:2: requestdistribution is \"gaussian\"; \
         allowed: uniform, zipfian, latest, hotspot, sequential, exponential",
    );
    assert_refused(
        "requestdistribution=exponential\nexponential.percentile=50",
        "w.properties:3: exponential.percentile is \"50\"; \
         allowed: a number between 85.71428571 (100 times exponential.frac) and 100",
    );
    assert_refused(
        "requestdistribution=exponential\nexponential.frac=1",
        "w.properties:3: exponential.frac is \"1\"; allowed: a number between 0 and 1",
    );
    assert_refused(
        "zipfianconstant=-0.1",
        "w.properties:2: zipfianconstant is \"-0.1\"; allowed: a number, at least 0",
    );
    assert_refused(
        "deleteproportion=0.5",
        "w.properties:2: deleteproportion is \"0.5\"; allowed: 0, there is no such operation",
    );
    assert_refused(
        "rotxkeynumber=0",
        "w.properties:2: rotxkeynumber is \"0\"; allowed: a whole number from 1 to 1000",
    );
    assert_refused(
        "readallfields=maybe",
        "w.properties:2: readallfields is \"maybe\"; allowed: true, false",
    );
    assert_refused(
        "minscanlength=11\nmaxscanlength=10",
        "w.properties:2: minscanlength is \"11\"; allowed: a whole number from 1 to 10",
    );
}

#[test]
fn contradictions_are_refused() {
    assert_refused(
        "readproportion=0\nupdateproportion=0",
        "w.properties: all proportions are 0: there is no operation to choose",
    );
    let error = from_text("readproportion=1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "w.properties: recordcount is not set; it has no default"
    );
    let error = from_text("recordcount=0").unwrap_err();
    assert!(error.to_string().contains("none is loaded"), "{error}");
    let inserts =
        from_text("recordcount=0\nreadproportion=0\nupdateproportion=0\ninsertproportion=1");
    assert_eq!(inserts.unwrap().insert_count, 0);
}

#[test]
fn unknown_properties_are_warned_of_with_the_likely_name() {
    let spec = with(
        "recordcuont=5\nupdate_proportion=1\nzzz=1\nhtrace.sampler=x\nworkload=a.b.TimeSeriesWorkload",
    );
    assert_eq!(
        spec.warnings,
        [
            "w.properties:5: htrace.sampler: it has no effect here",
            "w.properties:2: recordcuont: no such property; did you mean recordcount?",
            "w.properties:3: update_proportion: no such property; did you mean updateproportion?",
            "w.properties:6: workload: a.b.TimeSeriesWorkload is treated as the core workload",
            "w.properties:4: zzz: no such property",
        ]
    );
}
