//! The configuration as its users meet it: what loads, what is refused and in which words, what
//! comes back.

use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::*;

const EXAMPLES: [(&str, Role, &str); 4] = [
    (
        "minimal.xml",
        Role::Server,
        include_str!("../../../schemas/examples/minimal.xml"),
    ),
    (
        "server.xml",
        Role::Server,
        include_str!("../../../schemas/examples/server.xml"),
    ),
    (
        "dkvf-style.xml",
        Role::Server,
        include_str!("../../../schemas/examples/dkvf-style.xml"),
    ),
    (
        "client.xml",
        Role::Client,
        include_str!("../../../schemas/examples/client.xml"),
    ),
];

fn example(name: &str) -> NodeConfig {
    let (name, role, content) = EXAMPLES
        .iter()
        .find(|(example, _, _)| *example == name)
        .expect("an example");
    NodeConfig::parse(name, content.as_bytes(), *role).expect("a valid example")
}

fn parse(content: &str) -> Result<NodeConfig> {
    NodeConfig::parse("node.xml", content.as_bytes(), Role::Server)
}

/// Server 0_0 with more elements, which begin on line 2.
fn server(elements: &str) -> Result<NodeConfig> {
    parse(&format!("<config><id>0_0</id>\n{elements}</config>"))
}

fn refusal(result: Result<NodeConfig>) -> String {
    match result {
        Ok(config) => panic!("accepted: {}", config.to_xml()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_document_that_is_not_one_configuration_is_refused() {
    let table = [
        (
            "",
            "node.xml: the document: empty; write <config> and in it at least <id>",
        ),
        (
            "<!-- only this -->",
            "node.xml: the document: empty; write <config> and in it at least <id>",
        ),
        (
            "\n<cluster/>",
            "node.xml:2: <cluster>: not the root of a node's configuration; write <config>...</config>",
        ),
        (
            "<config><id>0_0</id></config>\n<config/>",
            "node.xml:2: <config>: a second root element; write one node per file",
        ),
        (
            "<config><id>0_0</id></config>\njunk",
            "node.xml:1: the document: text outside the root element: \"junk\"; remove it",
        ),
        (
            "junk<config/>",
            "node.xml:1: the document: text outside the root element: \"junk\"; remove it",
        ),
        (
            "<config>\n<id>0_0",
            "node.xml:2: <id>: not closed before the end of the file; add </id>",
        ),
        (
            "<config>\n<id>0_0</ip></config>",
            "node.xml:2: <id>: ill-formed document: expected `</id>`, but `</ip>` was found; every element, quote and comment needs its end",
        ),
        (
            "<config>\n<id",
            "node.xml:2: <config>: syntax error: tag not closed: `>` not found before end of input; every element, quote and comment needs its end",
        ),
        (
            "<!DOCTYPE config [<!ENTITY a \"b\">]><config/>",
            "node.xml:1: the document: a document type, which is not read; remove <!DOCTYPE ...>",
        ),
        (
            "<config>\n<id>&a;</id></config>",
            "node.xml:2: <id>: unknown entity in \"a\"; write &amp; for an ampersand; only &lt; &gt; &amp; &apos; &quot; and &#N; are read",
        ),
        (
            "<config>\n<id>&#0;</id></config>",
            "node.xml:2: <id>: unknown entity in \"#0\"; write &amp; for an ampersand; only &lt; &gt; &amp; &apos; &quot; and &#N; are read",
        ),
        (
            "<config>\n<id>&#1;</id></config>",
            "node.xml:2: <id>: unknown entity in \"#1\"; write &amp; for an ampersand; only &lt; &gt; &amp; &apos; &quot; and &#N; are read",
        ),
        (
            "<config>\n<!-- a--b --></config>",
            "node.xml:2: <config>: ill-formed document: forbidden string `--` was found in a comment; every element, quote and comment needs its end",
        ),
        (
            "<config>\n<connect_to><server id=\"&a;\"/></connect_to></config>",
            "node.xml:2: <server>: unknown entity in \"&a;\"; write &amp; for an ampersand; only &lt; &gt; &amp; &apos; &quot; and &#N; are read",
        ),
        (
            "<config>\n<connect_to><server id=0_1/></connect_to></config>",
            "node.xml:2: <server>: ill-formed attribute: position 10: attribute value must be enclosed in `\"` or `'`; write attributes as name=\"value\"",
        ),
        (
            "<config>\n\u{1}</config>",
            "node.xml:2: the document: a character that XML forbids; remove it",
        ),
        (
            "<?xml version=\"1.0\" encoding=\"latin1\"?><config/>",
            "node.xml:1: the document: an encoding other than UTF-8; save the file as UTF-8 and say so in <?xml ...?>",
        ),
        (
            "<config>\n<?xml version=\"1.0\"?></config>",
            "node.xml:2: <config>: <?xml ...?> is allowed at the very start only; remove it",
        ),
    ];
    for (content, expected) in table {
        assert_eq!(refusal(parse(content)), expected, "{content}");
    }
}

#[test]
fn a_document_beyond_the_limits_is_refused() {
    let deep = "<config>".repeat(limits::DEPTH_MAX + 1);
    let many = format!("<config>{}</config>", "<x/>".repeat(limits::ELEMENTS_MAX));
    let attributes: String = (0..=limits::ATTRIBUTES_MAX)
        .map(|i| format!(" a{i}=\"\""))
        .collect();
    let large = " ".repeat(limits::FILE_BYTES_MAX + 1);
    let table = [
        (
            deep,
            "node.xml:1: <config>: nested deeper than 16 elements; close the elements before it",
        ),
        (
            many,
            "node.xml:1: <x>: more than 10000 elements in one file; remove some",
        ),
        (
            format!("<config{attributes}/>"),
            "node.xml:1: <config>: more than 16 attributes; remove some",
        ),
        (
            large,
            "node.xml: the document: larger than 1048576 bytes; a node's configuration is never that large: is it the right file?",
        ),
    ];
    for (content, expected) in table {
        assert_eq!(refusal(parse(&content)), expected);
    }
}

#[test]
fn a_message_is_short_however_long_the_text_it_is_about() {
    let long = "x".repeat(100_000);
    let documents = [
        format!("<{long}/>"),
        format!("<{long}>"),
        format!("<config></{long}>"),
        format!("<config><{long}/></config>"),
        format!("<config {long}=\"\"/>"),
        format!("<config><id>&{long};</id></config>"),
        format!("<config><id>{long}</id></config>"),
        format!("<config><id>0_0</id><role>{long}</role></config>"),
        format!("<config><id>0_0</id><connect_to><server id=\"{long}\"/></connect_to></config>"),
    ];
    for document in documents {
        let message = refusal(parse(&document));
        assert!(message.len() < 1_500, "{message}");
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_refused_with_their_line() {
    let error = NodeConfig::parse(
        "node.xml",
        b"<config>\n<id>\xff</id></config>",
        Role::Server,
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "node.xml:2: the document: not UTF-8; save the file in the encoding UTF-8"
    );
    let utf_16: Vec<u8> = "\u{feff}<config/>"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(
        NodeConfig::parse("node.xml", &utf_16, Role::Server)
            .unwrap_err()
            .origin()
            .line,
        Some(1)
    );
}

#[test]
fn a_byte_order_mark_and_character_references_are_read() {
    let config = parse("\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><config><id>&#x30;_<![CDATA[0]]></id></config>").unwrap();
    assert_eq!(config.name, "0_0");
}

#[test]
fn an_element_or_attribute_out_of_place_is_refused() {
    let allowed = "Allowed here: <id>, <protocol>, <replica>, <partition>, <role>, <bind>, <client_port>, <server_port>, \
        <control_port>, <control_token>, <storage>, <durability>, <flush>, <peer_flush>, <connector_sleep_time>, \
        <channel_capacity>, <message_bytes_max>, <request_timeout_ms>, <connections_max>, <sessions_max>, <parked_max>, \
        <idle_timeout_ms>, <clock_skew_us>, <max_drift_ms>, <connect_to>, <delays>, <protocol_log_file>, \
        <protocol_log_level>, <protocol_log_type>, <protocol_std_log_level>, <framework_log_file>, <framework_log_level>, \
        <framework_log_type>, <framework_std_log_level>, <synch_communication>, <protocol_properties>";
    let misspelt = format!(
        "node.xml:2: <client_prot>: unknown element in <config>; did you mean <client_port>? {allowed}"
    );
    let table = [
        ("<client_prot>1</client_prot>", misspelt.as_str()),
        (
            "<storage><id>x</id></storage>",
            "node.xml:2: <id>: unknown element in <storage>; allowed here: <engine>, <class_name>, <directory>, <property>",
        ),
        (
            "<bind><x/></bind>",
            "node.xml:2: <x>: unknown element in <bind>; remove it: nothing is allowed here",
        ),
        (
            "<bind>1</bind>\n<bind>1</bind>",
            "node.xml:3: <bind>: already given at node.xml:2; remove one of them",
        ),
        (
            "<bind/>",
            "node.xml:2: <bind>: empty; give it a value or remove it",
        ),
        (
            "<bind> </bind>",
            "node.xml:2: <bind>: empty; give it a value or remove it",
        ),
        (
            "0_1",
            "node.xml:1: <config>: holds the text \"0_1\"; remove it: no text belongs here",
        ),
        (
            "<delays>none</delays>",
            "node.xml:2: <delays>: holds the text \"none\"; remove it: no text belongs here",
        ),
        (
            "<bind ip=\"::1\">::1</bind>",
            "node.xml:2: <bind>: unknown attribute \"ip\"; remove it: nothing is allowed here",
        ),
        (
            "<connect_to><server id=\"0_1\" ip=\"::1\" prot=\"1\"/></connect_to>",
            "node.xml:2: <server id=\"0_1\">: unknown attribute \"prot\"; did you mean port? \
             Allowed here: id, ip, port, client_port, control_port, replica, partition, role",
        ),
        (
            "<connect_to><server id=\"0_1\" ip=\"::1\"/></connect_to>",
            "node.xml:2: <server id=\"0_1\">: attribute port is missing; add port=\"...\"",
        ),
        (
            "<connect_to><server id=\"\" ip=\"::1\" port=\"1\"/></connect_to>",
            "node.xml:2: <server id=\"\">: attribute id is empty; give it a value",
        ),
        (
            "<connect_to><server id=\"a\" id=\"b\"/></connect_to>",
            "node.xml:2: <server>: attribute \"id\" is given twice; remove one",
        ),
        (
            "<storage><property key=\"a\" value=\"1\">1</property></storage>",
            "node.xml:2: <property key=\"a\">: holds the text \"1\"; remove it: no text belongs here",
        ),
        (
            "<storage><property key=\"a\"/></storage>",
            "node.xml:2: <property key=\"a\">: attribute value is missing; add value=\"...\"",
        ),
        (
            "<protocol_properties><property key=\"a\" value=\"1\"/>\n<property key=\"a\" value=\"2\"/></protocol_properties>",
            "node.xml:3: <property key=\"a\">: also given at node.xml:2; remove one of them",
        ),
    ];
    for (elements, expected) in table {
        assert_eq!(refusal(server(elements)), expected, "{elements}");
    }
}

#[test]
fn a_value_that_cannot_be_is_refused() {
    let table = [
        (
            "<client_port>70000</client_port>",
            "<client_port>: \"70000\" is not a port; write 0 (any free port) to 65535",
        ),
        (
            "<client_port>+1</client_port>",
            "<client_port>: \"+1\" is not a port; write 0 (any free port) to 65535",
        ),
        (
            "<client_port>2000</client_port>",
            "<server_port>: 2000 is also the client_port; give each a port of its own, or 0 for any free one",
        ),
        (
            "<bind>localhost</bind>",
            "<bind>: \"localhost\" is not an IP address; write 0.0.0.0 for all interfaces or the address of one",
        ),
        (
            "<role>sparse</role>",
            "<role>: \"sparse\" is unknown; did you mean spare? Allowed here: server, spare, master, client",
        ),
        (
            "<durability>disk</durability>",
            "<durability>: \"disk\" is unknown; allowed here: none, async, group, sync, sync-each, partitioned",
        ),
        (
            "<protocol>gentle rain</protocol>",
            "<protocol>: \"gentle rain\" is not a name; use letters, digits, _ - . and :, beginning with a letter, a digit or _, at most 128 bytes",
        ),
        (
            "<storage><engine>../x</engine></storage>",
            "<engine>: \"../x\" is not a name; use letters, digits, _ - . and :, beginning with a letter, a digit or _, at most 128 bytes",
        ),
        (
            "<replica>65536</replica>",
            "<replica>: 65536 is out of range; write 0 to 65535",
        ),
        (
            "<partition>-1</partition>",
            "<partition>: \"-1\" is not a whole number, or too large; write digits only, such as 0",
        ),
        (
            "<flush>interval</flush>",
            "<flush>: an interval of unknown length; add us=\"...\" (microseconds)",
        ),
        (
            "<flush us=\"5\">adaptive</flush>",
            "<flush>: attribute us belongs to interval only; remove it",
        ),
        (
            "<flush us=\"0\">interval</flush>",
            "<flush>: 0 is out of range; write 1 to 86400000000 (microseconds)",
        ),
        (
            "<flush>intervall</flush>",
            "<flush>: \"intervall\" is unknown; did you mean interval? Allowed here: adaptive, every_message, interval",
        ),
        (
            "<peer_flush us=\"5\">eager</peer_flush>",
            "<peer_flush>: attributes us and bytes belong to lazy only; remove them",
        ),
        (
            "<peer_flush bytes=\"0\">lazy</peer_flush>",
            "<peer_flush>: 0 is out of range; write 1 to 1099511627776 bytes",
        ),
        (
            "<peer_flush>never</peer_flush>",
            "<peer_flush>: \"never\" is unknown; allowed here: eager, lazy, protocol",
        ),
        (
            "<connector_sleep_time>0</connector_sleep_time>",
            "<connector_sleep_time>: 0 is out of range; write 1 to 86400000 (milliseconds)",
        ),
        (
            "<request_timeout_ms>5s</request_timeout_ms>",
            "<request_timeout_ms>: \"5s\" is not a whole number, or too large; write digits only, such as 5000",
        ),
        (
            "<sessions_max>99999999999999999999</sessions_max>",
            "<sessions_max>: \"99999999999999999999\" is not a whole number, or too large; write digits only, such as 65536",
        ),
        (
            "<clock_skew_us>-86400000001</clock_skew_us>",
            "<clock_skew_us>: 86400000001 is out of range; write 0 to 86400000000 (microseconds), also with a minus",
        ),
        (
            "<channel_capacity>3</channel_capacity>",
            "<channel_capacity>: 3 is out of range; write 4 to 1099511627776 bytes",
        ),
        (
            "<channel_capacity>1000</channel_capacity><message_bytes_max>251</message_bytes_max>",
            "<channel_capacity>: 1000 bytes are less than 4 times message_bytes_max, which is 251; write at least 1004, or lower message_bytes_max to 250",
        ),
        (
            "<protocol_log_level>loud</protocol_log_level>",
            "<protocol_log_level>: \"loud\" is unknown; allowed here: off, error, warn, info, debug, trace, severe, warning, config, fine, finer, finest, all",
        ),
        (
            "<framework_log_type>jsn</framework_log_type>",
            "<framework_log_type>: \"jsn\" is unknown; did you mean json? Allowed here: text, json",
        ),
        (
            "<synch_communication>maybe</synch_communication>",
            "<synch_communication>: \"maybe\" is neither true nor false; it has no effect: remove it",
        ),
        (
            "<protocol_properties><property key=\" a\" value=\"\"/></protocol_properties>",
            "<property key=\" a\">: the key is empty or has blanks around it, or a character is one that XML forbids; correct it",
        ),
    ];
    for (elements, expected) in table {
        assert_eq!(
            refusal(server(elements)),
            format!("node.xml:2: {expected}")
                .replace("node.xml:2: <server_port>", "node.xml: <server_port>"),
            "{elements}"
        );
    }
}

#[test]
fn a_cluster_that_contradicts_itself_is_refused() {
    let table = [
        (
            "<server id=\"0_1\" ip=\"h\" port=\"1\"/>\n<server id=\"0_1\" ip=\"h\" port=\"2\"/>",
            "node.xml:3: <server id=\"0_1\">: the id is already that of the server at node.xml:2; give one of them another id",
        ),
        (
            "<server id=\"b\" ip=\"h\" port=\"1\" replica=\"0\"/>",
            "node.xml:2: <server id=\"b\">: replica 0, partition 0 is already that of \"0_0\" at node.xml:1; give one of them another place or the role spare",
        ),
        (
            "<server id=\"0_0\" ip=\"h\" port=\"1\"/>",
            "node.xml:2: <server id=\"0_0\">: this very node, whose server_port is 2000, listed with port 1; make them equal or remove it here",
        ),
        (
            "<server id=\"0_0\" ip=\"h\" port=\"2000\" partition=\"1\"/>",
            "node.xml:2: <server id=\"0_0\">: this very node, which is server 0, 0, listed as server 0, 1; make them equal or remove it here",
        ),
        (
            "<server id=\"0_1\" ip=\"h\" port=\"1\"/>\n<server id=\"1_1\" ip=\"h\" port=\"1\"/>",
            "node.xml:2: <connect_to>: replica 1 has no server for partition 0, and the last partition of the cluster is 1; \
             list every server of the cluster here, or correct the place of one",
        ),
        (
            "<server id=\"2_0\" ip=\"h\" port=\"1\"/>",
            "node.xml:2: <connect_to>: replica 1 has no server, and there is a replica 2; list every server of the cluster here, or correct the place of one",
        ),
        (
            "<server id=\"b\" ip=\"h\" port=\"1\"/>",
            "node.xml:2: <server id=\"b\">: no replica and partition follow from the id; add replica=\"...\" and partition=\"...\", or name it like 0_1",
        ),
        (
            "<server id=\"b\" ip=\"h\" port=\"1\" role=\"client\"/>",
            "node.xml:2: <server id=\"b\">: a client cannot be connected to; remove it or correct its role",
        ),
        (
            "<server id=\"0_1\" ip=\"h\" port=\"0\"/>",
            "node.xml:2: <server id=\"0_1\">: \"0\" is not a port to connect to; write 1 to 65535",
        ),
        (
            "<server id=\"0_1\" ip=\"h:1\" port=\"1\"/>",
            "node.xml:2: <server id=\"0_1\">: \"h:1\" is neither an address nor a host name; write one, such as 127.0.0.1 or node1.example.org, without a port",
        ),
        (
            "<server id=\"0_1\" ip=\"h\" port=\"1\" replica=\"70000\"/>",
            "node.xml:2: <server id=\"0_1\">: replica or partition is too large; write 0 to 65535",
        ),
    ];
    for (servers, expected) in table {
        assert_eq!(
            refusal(server(&format!("<connect_to>{servers}</connect_to>"))),
            expected,
            "{servers}"
        );
    }
}

#[test]
fn a_delay_that_no_link_has_is_refused() {
    let table = [
        (
            "<delay from=\"0_0\" to=\"0_2\" ms=\"1\"/>",
            "node.xml:3: <delay>: no node has the id \"0_2\"; correct it, or list the node in <connect_to>",
        ),
        (
            "<delay from=\"0_0\" to=\"0_0\" ms=\"1\"/>",
            "node.xml:3: <delay>: from \"0_0\" to itself; a delay is between two nodes",
        ),
        (
            "<delay from=\"0_0\" to=\"0_1\" ms=\"1.5\"/>",
            "node.xml:3: <delay>: \"1.5\" is not a whole number, or too large; write digits only, such as 40",
        ),
        (
            "<delay from=\"0_0\" to=\"0_1\" ms=\"86400001\"/>",
            "node.xml:3: <delay>: longer than a day; write 0 to 86400000 (milliseconds)",
        ),
        (
            "<delay from=\"0_0\" to=\"0_1\" ms=\"1\"/>\n<delay from=\"0_0\" to=\"0_1\" ms=\"2\"/>",
            "node.xml:4: <delay>: from \"0_0\" to \"0_1\" is already given at node.xml:3; remove one of them",
        ),
    ];
    for (delays, expected) in table {
        let elements = format!(
            "<connect_to><server id=\"0_1\" ip=\"::1\" port=\"1\"/></connect_to>\n<delays>{delays}</delays>"
        );
        assert_eq!(refusal(server(&elements)), expected, "{delays}");
    }
}

#[test]
fn a_node_without_name_or_place_is_refused_unless_it_is_a_client() {
    assert_eq!(
        refusal(parse("<config/>")),
        "node.xml:1: <config>: <id> is missing; add <id>...</id>, the name of this node"
    );
    assert_eq!(
        refusal(parse("<config>\n<id>paris</id></config>")),
        "node.xml:2: <id>: no replica and partition follow from \"paris\"; add <replica> and <partition>, or name the node like 0_1"
    );
    let clients = "<connect_to><server id=\"1_0\" ip=\"::1\" port=\"1\"/></connect_to>";
    let client = NodeConfig::parse(
        "c.xml",
        format!("<config>{clients}</config>").as_bytes(),
        Role::Client,
    )
    .unwrap();
    assert_eq!(
        (client.name.as_str(), client.role),
        ("client", Role::Client)
    );
    assert_eq!(
        refusal(NodeConfig::parse("c.xml", b"<config/>", Role::Client)),
        "c.xml: <connect_to>: a client without servers; list them: <connect_to><server id=\"...\" ip=\"...\" port=\"...\"/></connect_to>"
    );
}

#[test]
fn the_place_of_a_node_comes_from_its_elements_then_its_properties_then_its_id() {
    let peers = "<connect_to><server id=\"0_0\" ip=\"::1\" port=\"1\"/><server id=\"0_1\" ip=\"::1\" port=\"1\"/>\
                 <server id=\"1_0\" ip=\"::1\" port=\"1\"/></connect_to>";
    let properties = "<protocol_properties><property key=\"dc_id\" value=\"1\"/><property key=\"p_id\" value=\"1\"/></protocol_properties>";
    let place = |head: &str, properties: &str| {
        let config = parse(&format!("<config>{head}{properties}{peers}</config>")).unwrap();
        (config.replica, config.partition, config.warnings().len())
    };
    assert_eq!(place("<id>1_1</id>", ""), (1, 1, 0));
    assert_eq!(place("<id>x</id>", properties), (1, 1, 0));
    assert_eq!(
        place(
            "<id>0_7</id><replica>1</replica><partition>1</partition>",
            properties
        ),
        (1, 1, 0)
    );
    assert_eq!(
        place("<id>0_7</id>", properties),
        (1, 1, 2),
        "two warnings: other nodes go by the id"
    );
}

#[test]
fn servers_are_numbered_alike_on_every_node() {
    let ids = ["0_0", "0_1", "1_0", "1_1"];
    let names = |config: &NodeConfig| {
        config
            .servers()
            .into_iter()
            .map(|server| server.name)
            .collect::<Vec<_>>()
    };
    for id in ids {
        let mut config = NodeConfig::new(id);
        config.connect_to = ids
            .iter()
            .rev()
            .filter(|other| **other != id)
            .map(|other| ServerEntry::new(*other, "::1", 1))
            .collect();
        config.validate().unwrap();
        assert_eq!(names(&config), ids);
        config
            .connect_to
            .push(ServerEntry::new(id, "::1", config.server_port));
        config.validate().unwrap();
        assert_eq!(names(&config), ids, "listed itself");
    }
    assert_eq!(
        names(&example("server.xml")),
        [
            "keeper", "paris-a", "paris-b", "tokyo-a", "tokyo-b", "tokyo-c"
        ]
    );
    assert_eq!(names(&example("client.xml")), ids, "a client is no server");
    let mut config = NodeConfig::new("z");
    config.connect_to = vec![ServerEntry {
        partition: 1,
        ..ServerEntry::new("a", "::1", 1)
    }];
    assert_eq!(
        names(&config),
        ["z", "a"],
        "the place counts before the name"
    );
}

#[test]
fn a_spare_may_share_the_place_of_a_server_and_leaves_no_gap() {
    let mut config = NodeConfig::new("0_0");
    let spare = |replica| ServerEntry {
        role: Role::Spare,
        replica,
        ..ServerEntry::new("x", "::1", 1)
    };
    config.connect_to = vec![spare(0)];
    config.validate().unwrap();
    config.connect_to = vec![spare(5)];
    config.validate().unwrap();
}

#[test]
fn a_client_may_know_some_replicas_only_but_all_their_partitions() {
    let mut config = NodeConfig {
        role: Role::Client,
        ..NodeConfig::new("c")
    };
    config.connect_to = vec![
        ServerEntry::new("2_0", "::1", 1),
        ServerEntry::new("2_1", "::1", 1),
    ];
    config.validate().unwrap();
    config.connect_to.remove(0);
    assert_eq!(
        config.validate().unwrap_err().to_string(),
        "(configuration in memory): <connect_to>: replica 2 has no server for partition 0, and the last partition of the cluster is 1; \
         list every server of the cluster here, or correct the place of one"
    );
}

#[test]
fn a_file_of_dkvf_loads_and_says_what_has_no_effect() {
    let config = example("dkvf-style.xml");
    assert_eq!((config.replica, config.partition), (1, 0));
    assert_eq!(
        (config.client_port, config.connector_sleep_time_ms),
        (2002, 100)
    );
    assert_eq!(
        (config.channel_capacity, config.message_bytes_max),
        (1000, 250)
    );
    assert_eq!(config.storage.engine, "memory");
    assert_eq!(config.protocol_log.level, LevelFilter::TRACE);
    assert_eq!(config.protocol_log.format, LogFormat::Json);
    assert_eq!(config.framework_log.level, LevelFilter::ERROR);
    assert_eq!(
        config.warnings(),
        [
            "dkvf-style.xml:9: <class_name>: Java classes are not loaded: the engine memory is used unless --storage names another; remove it",
            "dkvf-style.xml:9: <class_name>: instant_stable=true is not obeyed: writes are lost in a crash; add <durability>sync-each</durability>",
            "dkvf-style.xml:15: <channel_capacity>: 1000 bytes hold few messages (DKVF counted messages here); write a number of bytes or remove it",
            "dkvf-style.xml:16: <synch_communication>: there are no synchronous links, so it has no effect; remove it",
            "dkvf-style.xml:19: <protocol_log_type>: logs are not written as XML: JSON is used; write json or text",
            "dkvf-style.xml:22: <framework_log_level>: empty, so the default holds; give it a value or remove it",
            "dkvf-style.xml:25: <connect_to>: \"0_0\" cannot reach this node at 127.0.0.1; add <bind>0.0.0.0</bind>, or the address of one interface",
        ]
    );
    let interval = config.protocol_properties.duration_ms_any(
        &["gst_computation_interval", "gst_comutation_interval"],
        Duration::ZERO,
    );
    assert_eq!(interval.unwrap(), Duration::from_millis(20));
    assert_eq!(
        config.protocol_properties.unused(),
        ["children_p_ids", "heartbeat_interval", "parent_p_id"].map(|key| {
            let line = match key { "parent_p_id" => 35, "children_p_ids" => 36, _ => 37 };
            format!("dkvf-style.xml:{line}: <property key=\"{key}\">: nothing reads this property; correct its key or remove it")
        })
    );
}

#[test]
fn what_is_in_order_is_no_warning() {
    let table = [
        "<storage><class_name>x.BDBStorage</class_name></storage>",
        "<storage><class_name>x.BDBStorage</class_name><property key=\"instant_stable\" value=\"true\"/></storage>
         <durability>sync-each</durability>",
        "<synch_communication>false</synch_communication>",
    ];
    for elements in table {
        assert_eq!(server(elements).unwrap().warnings().len(), 1, "{elements}");
    }
    let silent = [
        "<connect_to><server id=\"0_0\" ip=\"10.0.0.1\" port=\"2000\"/></connect_to>",
        "<connect_to><server id=\"0_1\" ip=\"LOCALHOST\" port=\"1\"/></connect_to>",
        "<bind>10.0.0.1</bind><connect_to><server id=\"0_1\" ip=\"10.0.0.2\" port=\"1\"/></connect_to>",
        "<role>client</role><connect_to><server id=\"1_0\" ip=\"10.0.0.2\" port=\"1\"/></connect_to>
         <protocol_properties><property key=\"num_of_datacenters\" value=\"3\"/></protocol_properties>",
    ];
    for elements in silent {
        assert_eq!(
            server(elements).unwrap().warnings(),
            [] as [String; 0],
            "{elements}"
        );
    }
}

#[test]
fn counts_of_dkvf_that_are_not_those_of_the_cluster_are_a_warning() {
    let count = |key: &str| {
        let config = server(&format!(
            "<protocol_properties><property key=\"{key}\" value=\"3\"/></protocol_properties>"
        ))
        .unwrap();
        config.warnings().to_vec()
    };
    for key in ["num_of_partitions", "num_of_datacenters"] {
        assert_eq!(
            count(key),
            [format!(
                "node.xml:2: <property key=\"{key}\">: 3, but <connect_to> makes it 1, which holds; correct one of them"
            )]
        );
    }
}

#[test]
fn capacity_and_largest_message_follow_from_each_other() {
    let capacities = |elements| {
        let config = server(elements).unwrap();
        (config.channel_capacity, config.message_bytes_max)
    };
    assert_eq!(capacities(""), (80 << 20, 20 << 20));
    assert_eq!(
        capacities("<channel_capacity>67108864</channel_capacity>"),
        (64 << 20, 16 << 20)
    );
    assert_eq!(
        capacities("<message_bytes_max>100000000</message_bytes_max>"),
        (400_000_000, 100_000_000)
    );
    assert_eq!(
        capacities("<message_bytes_max>1000</message_bytes_max>"),
        (80 << 20, 1000)
    );
    assert_eq!(
        capacities("<channel_capacity>2147483647</channel_capacity>"),
        (2_147_483_647, 20 << 20),
        "the default of DKVF"
    );
}

#[test]
fn every_example_reads_back_equal_from_what_it_is_written_as() {
    for (name, role, _) in EXAMPLES {
        let config = example(name);
        let again = NodeConfig::parse("again.xml", config.to_xml().as_bytes(), role).unwrap();
        assert_eq!(again, config, "{name}");
        assert_eq!(again.to_xml(), config.to_xml(), "{name}");
    }
}

#[test]
fn what_a_program_makes_reads_back_equal() {
    let mut config = NodeConfig::new("0_0");
    config.control_token = Some(ControlToken::new("<&\"'>"));
    config.storage.directory = Some("data/a & b".into());
    config.flush = Flush::EveryMessage;
    config.peer_flush = PeerFlush::Eager;
    config.durability = Durability::SyncEach;
    config
        .protocol_properties
        .set("text", " a\n\t\"b\"\r\n<c> ");
    config.protocol_properties.set("list", "");
    config.validate().unwrap();
    assert_eq!(parse(&config.to_xml()).unwrap(), config);
    for peer_flush in [PeerFlush::Protocol, PeerFlush::Lazy { us: 7, bytes: 9 }] {
        let config = NodeConfig {
            peer_flush,
            flush: Flush::Interval { us: 3 },
            ..config.clone()
        };
        assert_eq!(parse(&config.to_xml()).unwrap(), config);
    }
}

#[test]
fn names_hosts_and_ports_are_checked_wherever_they_come_from() {
    let valid = |name: &str, host: &str| {
        let mut config = NodeConfig {
            replica: 1,
            ..NodeConfig::new(name)
        };
        config.connect_to = vec![ServerEntry::new("0_0", host, 1)];
        config.validate().is_ok()
    };
    for name in [
        "a",
        "_",
        "7",
        "\u{e9}t\u{e9}-1.b:c",
        &"x".repeat(limits::NAME_BYTES_MAX),
    ] {
        assert!(valid(name, "h"), "{name}");
    }
    for name in [
        "",
        ".",
        "-a",
        "a b",
        "a/b",
        "+1_0",
        &"x".repeat(limits::NAME_BYTES_MAX + 1),
    ] {
        assert!(!valid(name, "h"), "{name}");
    }
    for host in ["node-1.example_2.org", "10.0.0.1", "::1", &"x".repeat(253)] {
        assert!(valid("a", host), "{host}");
    }
    for host in ["", "[::1]", "a:1", "a b", &"x".repeat(254)] {
        assert!(!valid("a", host), "{host}");
    }
    let ports = |role, port| {
        let mut config = NodeConfig {
            role,
            client_port: port,
            server_port: port,
            ..NodeConfig::new("a")
        };
        config.connect_to = vec![ServerEntry {
            replica: 1,
            ..ServerEntry::new("b", "h", 1)
        }];
        config.validate().is_ok()
    };
    assert!(!ports(Role::Server, 7));
    assert!(ports(Role::Server, 0), "each gets a free port of its own");
    assert!(ports(Role::Client, 7), "a client listens on no port");
}

#[test]
fn what_would_not_read_back_equal_is_not_valid() {
    let invalid = |change: &dyn Fn(&mut NodeConfig)| {
        let mut config = NodeConfig::new("0_0");
        change(&mut config);
        config.validate().unwrap_err().to_string()
    };
    let text = "empty, or has blanks around it or control characters in it; remove them";
    assert_eq!(
        invalid(&|config| config.control_token = Some(ControlToken::new(" a"))),
        format!("(configuration in memory): <control_token>: {text}")
    );
    assert_eq!(
        invalid(&|config| config.framework_log.file = Some("".into())),
        format!("(configuration in memory): <framework_log_file>: {text}")
    );
    assert_eq!(
        invalid(&|config| config.protocol_properties.set("a", "\0")),
        "(configuration in memory): <property key=\"a\">: the key is empty or has blanks around it, or a character is one that XML forbids; correct it"
    );
    assert!(
        invalid(&|config| config.name = "a/b".to_owned())
            .starts_with("(configuration in memory): <id>: \"a/b\" is not a name;")
    );
}

#[test]
fn properties_are_read_with_types_and_defaults() {
    let config = server(
        "<protocol_properties>\n<property key=\"n\" value=\" 7 \"/>\n<property key=\"word\" value=\"x\"/>\n\
         <property key=\"list\" value=\"1, 2,3\"/>\n<property key=\"blank\" value=\"\"/>\n<property key=\"holes\" value=\"1,,2\"/>\n\
         <property key=\"old\" value=\"1\"/>\n<property key=\"new\" value=\"2\"/>\n<property key=\"ages\" value=\"86400001\"/></protocol_properties>",
    )
    .unwrap();
    let properties = &config.protocol_properties;
    assert_eq!(properties.get("n", 1_u32).unwrap(), 7);
    assert_eq!(properties.get("absent", 1_u32).unwrap(), 1);
    assert_eq!(properties.get("word", String::new()).unwrap(), "x");
    assert_eq!(properties.require::<i8>("n").unwrap(), 7);
    assert_eq!(
        properties.duration_ms("n", Duration::ZERO).unwrap(),
        Duration::from_millis(7)
    );
    assert_eq!(properties.list::<u8>("list").unwrap(), [1, 2, 3]);
    assert_eq!(properties.list::<u8>("blank").unwrap(), [0_u8; 0]);
    assert_eq!(properties.list::<u8>("absent").unwrap(), [0_u8; 0]);
    assert_eq!(properties.unused().len(), 4, "holes, old, new, ages");

    let errors = [
        (
            properties.get("word", 1_u32).unwrap_err(),
            "node.xml:4: <property key=\"word\">: \"x\" is not a u32: invalid digit found in string; correct the value",
        ),
        (
            properties.require::<u32>("absent").unwrap_err(),
            "node.xml:2: <property key=\"absent\">: missing; add <property key=\"absent\" value=\"...\"/>",
        ),
        (
            properties.list::<u8>("holes").unwrap_err(),
            "node.xml:7: <property key=\"holes\">: \"\" is not a u8: cannot parse integer from empty string; correct the value",
        ),
        (
            properties.get_any(&["new", "old"], 0).unwrap_err(),
            "node.xml:8: <property key=\"old\">: another name of the property \"new\", which is given too; remove one of them",
        ),
        (
            properties.duration_ms("ages", Duration::ZERO).unwrap_err(),
            "node.xml:10: <property key=\"ages\">: 86400001 is longer than a day; write 0 to 86400000 (milliseconds)",
        ),
        (
            properties.error("n", "odd; write 8"),
            "node.xml:3: <property key=\"n\">: odd; write 8",
        ),
    ];
    for (error, expected) in errors {
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(properties.unused(), [] as [String; 0]);
}

#[test]
fn another_crate_can_name_the_line_of_an_element() {
    let config = server("<storage>\n<engine>papyrus</engine></storage>").unwrap();
    let error = config.error("engine", "no engine has this name; write memory");
    assert_eq!(
        error.to_string(),
        "node.xml:3: <engine>: no engine has this name; write memory"
    );
    assert_eq!(
        (error.element(), error.problem()),
        ("<engine>", "no engine has this name; write memory")
    );
}

#[test]
fn a_token_is_matched_whole_and_never_shown() {
    let config = server("<control_token>sesame</control_token>").unwrap();
    let token = config.control_token.as_ref().unwrap();
    for (offered, expected) in [
        ("sesame", true),
        ("sesamE", false),
        ("sesam", false),
        ("sesame ", false),
        ("", false),
    ] {
        assert_eq!(token.matches(offered), expected, "{offered}");
    }
    assert!(!format!("{config:?}").contains("sesame"));
}

#[test]
fn words_are_read_as_they_are_written() {
    for (word, role) in Role::WORDS {
        assert_eq!(
            (word.parse(), role.to_string().as_str()),
            (Ok(*role), *word)
        );
    }
    for (word, durability) in Durability::WORDS {
        assert_eq!(
            (word.parse(), durability.to_string().as_str()),
            (Ok(*durability), *word)
        );
    }
    assert_eq!(log_level("FINE"), Ok(LevelFilter::DEBUG));
    assert_eq!(
        "snyc".parse::<Durability>().unwrap_err().to_string(),
        "\"snyc\" is unknown; did you mean sync? Allowed here: none, async, group, sync, sync-each, partitioned"
    );
}

/// A default that the schema states and the code does not have would mislead every reader of the
/// schema.
#[test]
fn the_schema_states_the_defaults_of_the_code() {
    fn defaults(element: &xml::Element, found: &mut Vec<(String, String)>) {
        if let (Some(name), Some(default)) =
            (element.attribute("name"), element.attribute("default"))
        {
            found.push((name.to_owned(), default.to_owned()));
        }
        element
            .children
            .iter()
            .for_each(|child| defaults(child, found));
    }
    fn texts(element: &xml::Element, found: &mut Vec<(String, String)>) {
        if element.children.is_empty() && !element.text.is_empty() {
            found.push((element.name.clone(), element.text.clone()));
        }
        element
            .children
            .iter()
            .for_each(|child| texts(child, found));
    }
    let (mut stated, mut coded) = (Vec::new(), Vec::new());
    defaults(
        &xml::parse("Config.xsd", include_bytes!("../../../schemas/Config.xsd")).unwrap(),
        &mut stated,
    );
    texts(
        &xml::parse("default", NodeConfig::new("0_0").to_xml().as_bytes()).unwrap(),
        &mut coded,
    );
    // What says who the node is has no default.
    coded.retain(|(name, _)| !["id", "replica", "partition"].contains(&name.as_str()));
    stated.sort();
    coded.sort();
    assert_eq!(stated, coded);
}

/// The schema declares the elements and attributes that the reader knows, and no others.
#[test]
fn the_schema_declares_what_the_reader_knows() {
    fn declared(element: &xml::Element, found: &mut Vec<String>) {
        if matches!(element.name.as_str(), "xsd:element" | "xsd:attribute") {
            found.extend(element.attribute("name").map(str::to_owned));
        }
        element
            .children
            .iter()
            .for_each(|child| declared(child, found));
    }
    let mut in_schema = Vec::new();
    declared(
        &xml::parse("Config.xsd", include_bytes!("../../../schemas/Config.xsd")).unwrap(),
        &mut in_schema,
    );
    let mut in_reader = shape::names();
    in_schema.sort();
    in_schema.dedup();
    in_reader.sort_unstable();
    in_reader.dedup();
    assert_eq!(in_schema, in_reader);
}

/// Whatever a file holds, it is a configuration or an error that names the file.
#[test]
fn mutated_files_never_panic() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut accepted = 0;
    for (_, role, content) in EXAMPLES {
        for _ in 0..5_000 {
            let mut bytes = content.as_bytes().to_vec();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                match random(5) {
                    0 => bytes[at] = random(256) as u8,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, b"<>&\"'/=! \n0-]["[random(14)]),
                    3 => bytes.truncate(at.max(1)),
                    _ => {
                        let end = (at + random(64)).min(bytes.len());
                        let copy = bytes[at..end].to_vec();
                        let to = random(bytes.len());
                        bytes.splice(to..to, copy);
                    }
                }
            }
            match NodeConfig::parse("node.xml", &bytes, role) {
                Ok(config) => {
                    accepted += 1;
                    assert_eq!(
                        NodeConfig::parse("again.xml", config.to_xml().as_bytes(), role).as_ref(),
                        Ok(&config)
                    );
                }
                Err(error) => assert!(error.to_string().starts_with("node.xml"), "{error}"),
            }
        }
    }
    assert!(
        accepted > 100,
        "mutations that hit comments and names leave a valid file: {accepted}"
    );
}
