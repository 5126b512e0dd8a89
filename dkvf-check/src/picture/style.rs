//! How the parts of a picture look.
//!
//! The colours are those of Okabe and Ito (2008), which people with any of the common colour blindnesses tell apart;
//! they are a little darker on white where small text needs the contrast. Nothing is told by colour alone: arrows
//! have labels, and what is uncertain has words.

use crate::verdict::EdgeKind;

/// The name of the class of arrows of a kind.
pub(super) fn class(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Session => "so",
        EdgeKind::RealTime => "rt",
        EdgeKind::ReadsFrom => "wr",
        EdgeKind::VersionOrder => "ww",
        EdgeKind::AntiDependency => "rw",
        EdgeKind::Inferred => "in",
    }
}

/// The style sheet of a picture: light, and dark where the reader prefers that.
pub(super) const SHEET: &str = "
text{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace;fill:#1f2328}
.title{font:600 17px system-ui,'Segoe UI','Helvetica Neue',Arial,'DejaVu Sans',sans-serif}
.verdict,.caption{font:13px system-ui,'Segoe UI','Helvetica Neue',Arial,'DejaVu Sans',sans-serif}
.verdict{fill:#57606a}
.group{font-weight:700}
.lane,.tick,.legend,.message-text{fill:#57606a}
.faint{fill:#6e7781}
.paper{fill:#ffffff}
.site{fill:#f6f8fa}
.line{stroke:#afb8c1;stroke-width:1}
.axis{stroke:#8c959f;stroke-width:1;fill:none}
.bar{fill:#ffffff;stroke:#57606a;stroke-width:1.5}
.bar.context{fill:#f6f8fa;stroke:#d0d7de;stroke-width:1}
.bar.uncertain{stroke-dasharray:4 3}
.between{stroke:#d0d7de;stroke-width:1}
.message{stroke:#8c959f;stroke-width:1;fill:none}
.mark{stroke:#9a3412;stroke-width:1.5;fill:none}
.during{fill:#d55e00;fill-opacity:.12}
.mark-text{fill:#9a3412}
.pill{fill:#ffffff;stroke-width:1}
.plain{fill:#ffffff;fill-opacity:.85}
.arrow{fill:none;stroke-width:2}
.dashed{stroke-dasharray:6 4}
.arrow.so,.pill.so{stroke:#57606a}.head.so,.text.so{fill:#57606a}
.arrow.rt,.pill.rt{stroke:#00795a}.head.rt,.text.rt{fill:#00795a}
.arrow.wr,.pill.wr{stroke:#0072b2}.head.wr,.text.wr{fill:#0072b2}
.arrow.ww,.pill.ww{stroke:#b34700}.head.ww,.text.ww{fill:#b34700}
.arrow.rw,.pill.rw{stroke:#aa3377}.head.rw,.text.rw{fill:#aa3377}
.arrow.in,.pill.in{stroke:#7a5c00}.head.in,.text.in{fill:#7a5c00}
g:hover>.arrow{stroke-width:3.5}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}
.verdict,.lane,.tick,.legend,.message-text{fill:#9da7b3}
.faint{fill:#8b949e}
.paper{fill:#0d1117}
.site{fill:#161b22}
.line{stroke:#484f58}
.bar{fill:#0d1117;stroke:#9da7b3}
.bar.context{fill:#161b22;stroke:#30363d}
.between{stroke:#30363d}
.mark{stroke:#ffa657}.mark-text{fill:#ffa657}
.pill,.plain{fill:#0d1117}
.arrow.so,.pill.so{stroke:#9da7b3}.head.so,.text.so{fill:#9da7b3}
.arrow.rt,.pill.rt{stroke:#2fc79a}.head.rt,.text.rt{fill:#2fc79a}
.arrow.wr,.pill.wr{stroke:#56b4e9}.head.wr,.text.wr{fill:#56b4e9}
.arrow.ww,.pill.ww{stroke:#ff8f4d}.head.ww,.text.ww{fill:#ff8f4d}
.arrow.rw,.pill.rw{stroke:#e68ac0}.head.rw,.text.rw{fill:#e68ac0}
.arrow.in,.pill.in{stroke:#f0c94a}.head.in,.text.in{fill:#f0c94a}
}
";
