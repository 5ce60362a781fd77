//! Kinds of requests.

/// Kinds of requests, as metrics name them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// Open.
    Open,
    /// Close.
    Close,
    /// Get.
    Get,
    /// A client uses a session.
    KeepAlive,
    /// One partition's page of a list.
    List,
    /// One long poll of a watch.
    Pull,
    /// A node's report.
    Report,
    /// A look at what a node has of a session.
    Mend,
    /// About stable numbers of sessions.
    Numbers,
    /// About tasks.
    Tasks,
    /// A search.
    Search,
    /// About lives of sessions.
    Lives,
    /// Anything about documents.
    Documents,
}

impl OpKind {
    /// All of them, in order.
    pub const ALL: [Self; 13] = [
        Self::Open,
        Self::Close,
        Self::Get,
        Self::KeepAlive,
        Self::List,
        Self::Pull,
        Self::Report,
        Self::Mend,
        Self::Numbers,
        Self::Tasks,
        Self::Search,
        Self::Lives,
        Self::Documents,
    ];

    /// How it is called in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Close => "close",
            Self::Get => "get",
            Self::KeepAlive => "keep_alive",
            Self::List => "list",
            Self::Pull => "pull",
            Self::Report => "report",
            Self::Mend => "mend",
            Self::Numbers => "numbers",
            Self::Tasks => "tasks",
            Self::Search => "search",
            Self::Lives => "lives",
            Self::Documents => "documents",
        }
    }
}
