//! Exceptions: every way in which an operation or a synchronisation ends without success.
//!
//! The first letter of an exception's code says what it means and gives its MAJOR number; the
//! phase says how far the operation had come. [`TABLE`] is the one place that maps letters to
//! status codes, to HTTP, and to what a caller should do.

use rota_model::{FieldError, Retry};
use std::borrow::Cow;
use std::fmt;

/// The meaning of an exception: the first letter of its code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Letter {
    /// Business: the contents of documents do not allow what the parameters ask for.
    A,
    /// Missing: something was asked for that does not exist.
    N,
    /// Bug: data was found that should never have come to exist.
    B,
    /// Unexpected: something failed that nobody foresaw; it may work a little later.
    X,
    /// Outdated: the caller's build is older than the server's.
    D,
    /// Contention: other operations kept changing the same documents.
    C,
    /// Off: an administrator closed the namespace for a while.
    O,
    /// Security: who asks may not do this.
    S,
}

/// Names of gRPC status codes, as far as exceptions use them. Plain data: this crate knows no gRPC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// INVALID_ARGUMENT: of business exceptions that name fields.
    InvalidArgument,
    /// FAILED_PRECONDITION.
    FailedPrecondition,
    /// NOT_FOUND.
    NotFound,
    /// INTERNAL.
    Internal,
    /// UNAVAILABLE.
    Unavailable,
    /// ABORTED.
    Aborted,
    /// PERMISSION_DENIED.
    PermissionDenied,
    /// ALREADY_EXISTS.
    AlreadyExists,
    /// RESOURCE_EXHAUSTED: a limit.
    ResourceExhausted,
}

/// One row of [`TABLE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The letter.
    pub letter: Letter,
    /// The MAJOR number, 1 to 7.
    pub major: u8,
    /// The gRPC status.
    pub status: Status,
    /// The gRPC status of one that names fields.
    pub status_of_fields: Status,
    /// Codes that have a gRPC status of their own, fields or not.
    pub status_of_codes: &'static [(Code, Status)],
    /// The HTTP status: 404 for what does not exist, else 400.
    pub http: u16,
    /// Whether the engine starts a new attempt by itself (before the commit only).
    pub is_retried: bool,
    /// What the caller should do once the engine has given up.
    pub retry: Retry,
    /// Codes with which it should never do the same again, whatever `retry` says.
    pub never: &'static [Code],
}

const fn row(
    letter: Letter,
    major: u8,
    status: Status,
    http: u16,
    is_retried: bool,
    retry: Retry,
) -> Row {
    let (status_of_fields, status_of_codes, never) = (status, &[], &[]);
    Row { letter, major, status, status_of_fields, status_of_codes, http, is_retried, retry, never }
}

/// What each letter means outside.
pub const TABLE: [Row; 8] = [
    Row {
        status_of_fields: Status::InvalidArgument,
        status_of_codes: &[
            (codes::EXISTS, Status::AlreadyExists),
            (codes::LIMIT, Status::ResourceExhausted),
        ],
        never: codes::OF_THE_REQUEST,
        ..row(Letter::A, 1, Status::FailedPrecondition, 400, false, Retry::WhenChanged)
    },
    row(Letter::N, 1, Status::NotFound, 404, false, Retry::WhenChanged),
    row(Letter::B, 2, Status::Internal, 400, false, Retry::Never),
    Row {
        // Whoever asks again at UNAVAILABLE by itself would do so in vain.
        status_of_codes: &[(codes::QUOTA, Status::ResourceExhausted)],
        never: codes::OF_THE_WORK,
        ..row(Letter::X, 3, Status::Unavailable, 400, true, Retry::AfterMs(1_000))
    },
    row(Letter::D, 4, Status::FailedPrecondition, 400, false, Retry::Never),
    row(Letter::C, 5, Status::Aborted, 400, true, Retry::AfterMs(500)),
    row(Letter::O, 6, Status::Unavailable, 400, false, Retry::AfterMs(30_000)),
    row(Letter::S, 7, Status::PermissionDenied, 400, false, Retry::Never),
];

impl Letter {
    /// The row of this letter.
    pub fn row(self) -> &'static Row {
        TABLE.iter().find(|it| it.letter == self).expect("the table has every letter")
    }

    /// From the first letter of a code.
    fn of(code: &str) -> Option<Self> {
        let first = code.chars().next()?;
        TABLE.iter().map(|it| it.letter).find(|it| format!("{it:?}").starts_with(first))
    }
}

/// How far an operation had come when its exception was raised.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// 0: before it began.
    Before,
    /// 1: in `work()`.
    Work,
    /// 2: in the validation.
    Validation,
    /// 3: in `after_work()`.
    AfterWork,
    /// 4: in the synchronisation after the operation. What a caller can do wrong there is refused before
    /// any work, so this is a failure of whatever holds the documents (X-PANIC).
    Synchronisation,
    /// 5: while the result was sent. Raised by managers (X-LOST): the first answer did not arrive, the
    /// request came again, and the result was too long to be kept for that.
    Sending,
}

/// Whether an operation that ended in an exception changed documents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// It changed nothing.
    Nothing,
    /// Its changes are valid for ever; only what came after failed.
    Committed,
}

impl Phase {
    /// Every phase, by number.
    pub const ALL: [Phase; 6] = [
        Phase::Before,
        Phase::Work,
        Phase::Validation,
        Phase::AfterWork,
        Phase::Synchronisation,
        Phase::Sending,
    ];

    /// 0 to 5.
    pub fn number(self) -> u8 {
        match self {
            Phase::Before => 0,
            Phase::Work => 1,
            Phase::Validation => 2,
            Phase::AfterWork => 3,
            Phase::Synchronisation => 4,
            Phase::Sending => 5,
        }
    }

    /// From its number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.number() == number)
    }

    /// What an operation has changed when it fails in this phase. Validation is all or nothing, so
    /// a failure there changed nothing.
    pub fn effect(self) -> Effect {
        match self {
            Phase::Before | Phase::Work | Phase::Validation => Effect::Nothing,
            Phase::AfterWork | Phase::Synchronisation | Phase::Sending => Effect::Committed,
        }
    }
}

/// A code (MINOR): its first letter is one of [`Letter`]'s.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    letter: Letter,
    text: Cow<'static, str>,
}

/// Longest code, in bytes.
pub const CODE_BYTES_MAX: usize = 64;

impl Code {
    const fn fixed(letter: Letter, text: &'static str) -> Self {
        Self { letter, text: Cow::Borrowed(text) }
    }

    /// A code from its text: 1 to [`CODE_BYTES_MAX`] bytes, no control characters, and a first
    /// letter out of A N B X D C O S. Field `code`.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        crate::name::check_word("code", text, CODE_BYTES_MAX)?;
        let unknown = || FieldError::new("code", format!("{text:?} has no known first letter"));
        let letter = Letter::of(text).ok_or_else(unknown)?;
        Ok(Self { letter, text: text.to_owned().into() })
    }

    /// Its meaning.
    pub fn letter(&self) -> Letter {
        self.letter
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $letter:ident $text:literal;)*) => {
        $($(#[$doc])* pub const $name: Code = Code::fixed(Letter::$letter, $text);)*
        /// Every code that the store itself raises.
        pub const ALL: &[Code] = &[$($name),*];
    };
}

/// Codes that the store itself raises. Operations add their own.
pub mod codes {
    use super::{Code, Letter};

    codes! {
        /// A parameter, name or content is not valid, or too long by itself; the fields say which, and
        /// the limit.
        INVALID = A "A-INVALID";
        /// Too many or too much together: documents, a namespace, a document or a result would become
        /// too large; the field says the limit.
        LIMIT = A "A-LIMIT";
        /// Tolerance-0 documents of one operation, or those to bring up to date after it, lie in
        /// different slots.
        SLOT = A "A-SLOT";
        /// The caller's operation time is in the future, or too long ago.
        TIME = A "A-TIME";
        /// There is no operation of that name.
        OPERATION = N "N-OPERATION";
        /// There is no such task, or another run has it.
        TASK = N "N-TASK";
        /// There is no such document.
        DOCUMENT = N "N-DOCUMENT";
        /// The body of an attachment is not there; it must be before the item that names it.
        BODY = N "N-BODY";
        /// A document that was to be created exists.
        EXISTS = A "A-EXISTS";
        /// There is no such namespace.
        NAMESPACE = N "N-NAMESPACE";
        /// An operation changed a document that it asked for as read-only, or that does not exist.
        MISUSE = B "B-MISUSE";
        /// A stored item does not read as its type.
        STORED = B "B-STORED";
        /// An operation panicked.
        PANIC = X "X-PANIC";
        /// A document of elsewhere is not at hand in a copy that is fresh enough.
        NOT_AT_HAND = X "X-NOT-AT-HAND";
        /// The file of an attachment's body is not what was written. It is fetched again where another
        /// copy has it, and may be put again.
        DAMAGED = X "X-DAMAGED";
        /// The operation was carried out, and its result was lost on the way to its caller.
        LOST = X "X-LOST";
        /// Too much waits for the disk, too many operations are remembered, or as many operations work as
        /// may; nothing was done.
        BUSY = X "X-BUSY";
        /// An operation worked for longer than its driver allows; nothing was changed, and nothing will
        /// be.
        QUOTA = X "X-QUOTA";
        /// The store is closed, or is closing; nothing was done.
        CLOSED = X "X-CLOSED";
        /// The century is over: there is no later stamp.
        STAMPS = X "X-STAMPS";
        /// The caller's build is older than the server's.
        BUILD = D "D-BUILD";
        /// A document changed between work and validation.
        CONTENTION = C "C-CONTENTION";
        /// A document was changed so often that its versions are far ahead of the clock, or the clock was set
        /// back: nothing was done. It is told when the next change has its turn.
        AHEAD = C "C-AHEAD";
        /// The namespace is switched off.
        OFF = O "O-OFF";
        /// The account, its key or its privilege was refused.
        REFUSED = S "S-REFUSED";
        /// The namespace may not read, or not change, the other one.
        SPACE = S "S-SPACE";
        /// Documents of that class are read by operations and never changed by them.
        CLASS = S "S-CLASS";
    }

    /// What is wrong with the request itself: it will be refused whatever else changes.
    pub const OF_THE_REQUEST: &[Code] = &[INVALID, SLOT, TIME];

    /// What was too much to do: the same again would take as long, and keep others waiting.
    pub const OF_THE_WORK: &[Code] = &[QUOTA];
}

/// An exception. Small to move; details on the heap.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Exception(Box<Details>);

/// Everything that a caller is told about an exception.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Details {
    /// The code.
    pub code: Code,
    /// How far the operation had come.
    pub phase: Phase,
    /// A sentence for people.
    pub message: String,
    /// Which fields are wrong and what their limits are; may be empty.
    pub fields: Vec<FieldError>,
    /// The operation; empty while none is known.
    pub operation: String,
    /// Attempts that were made; 0 before the first.
    pub attempts: u8,
    /// After how many milliseconds there will be another answer, if that is known better than the code
    /// says. No attempt is made before.
    pub after_ms: Option<u64>,
}

/// The way in for exceptions of operations: `minor` is put behind the letter.
macro_rules! raise {
    ($($(#[$doc:meta])* $name:ident $letter:ident;)*) => {
        $($(#[$doc])*
        pub fn $name(minor: &str, message: impl Into<String>) -> Self {
            let text = format!("{}-{minor}", stringify!($letter));
            Self::new(Code { letter: Letter::$letter, text: text.into() }, message)
        })*
    };
}

impl Exception {
    /// An exception of work; the engine sets another phase where that is not true.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Details {
            code,
            phase: Phase::Work,
            message: message.into(),
            fields: Vec::new(),
            operation: String::new(),
            attempts: 0,
            after_ms: None,
        }))
    }

    raise! {
        /// Business: the contents of documents do not allow this.
        business A;
        /// Something that was asked for does not exist.
        missing N;
        /// Data that should never have come to exist.
        bug B;
        /// A failure that nobody foresaw. A new attempt is made.
        unexpected X;
        /// Who asks may not do this.
        unauthorised S;
    }

    /// A mistake in one field, which is also the message.
    pub fn of_field(code: Code, field: FieldError) -> Self {
        Self::new(code, field.to_string()).with_field(field)
    }

    /// Adds a field.
    #[must_use]
    pub fn with_field(mut self, field: FieldError) -> Self {
        self.0.fields.push(field);
        self
    }

    /// Says after how many milliseconds to try again.
    #[must_use]
    pub fn after(mut self, ms: u64) -> Self {
        self.0.after_ms = Some(ms);
        self
    }

    /// Sets the phase.
    #[must_use]
    pub fn at(mut self, phase: Phase) -> Self {
        self.0.phase = phase;
        self
    }

    /// What no operation raised: a refusal of the call of that name. Nothing was done, unless a phase after
    /// the commit says so. One that an operation raised stays as it is.
    #[must_use]
    pub fn in_call(mut self, call: &str) -> Self {
        if self.0.operation.is_empty() {
            call.clone_into(&mut self.0.operation);
            if self.0.phase.effect() == Effect::Nothing {
                self.0.phase = Phase::Before;
            }
        }
        self
    }

    /// Says in which operation, and in which attempt, it was raised.
    #[must_use]
    pub(crate) fn in_operation(mut self, operation: &str, attempts: u8) -> Self {
        operation.clone_into(&mut self.0.operation);
        self.0.attempts = attempts;
        self
    }

    /// Everything about it.
    pub fn details(&self) -> &Details {
        &self.0
    }

    /// The code.
    pub fn code(&self) -> &Code {
        &self.0.code
    }

    /// The meaning.
    pub fn letter(&self) -> Letter {
        self.0.code.letter
    }

    /// How far the operation had come.
    pub fn phase(&self) -> Phase {
        self.0.phase
    }

    /// The gRPC status, by [`TABLE`]: of some codes, and of some letters when fields are named, another one.
    /// A field that will be right in a while is not wrong by itself. What has happened is not to be repeated,
    /// as UNAVAILABLE would have it.
    pub fn status(&self) -> Status {
        let row = self.letter().row();
        if let Some((_, status)) = row.status_of_codes.iter().find(|it| it.0 == self.0.code) {
            return *status;
        }
        match self.phase().effect() {
            Effect::Committed if row.status == Status::Unavailable => Status::Internal,
            Effect::Committed | Effect::Nothing
                if self.0.fields.is_empty() || self.0.after_ms.is_some() =>
            {
                row.status
            }
            Effect::Committed | Effect::Nothing => row.status_of_fields,
        }
    }

    /// Whether the engine may start a new attempt: the letter allows it, nothing has been committed, and
    /// it is not known that it would be in vain.
    pub fn is_retried(&self) -> bool {
        let is_open = self.0.after_ms.is_none() && self.phase().effect() == Effect::Nothing;
        self.letter().row().is_retried && is_open
    }

    /// What the caller should do, by [`TABLE`]. After the commit: never the same again, since it has
    /// happened.
    pub fn retry(&self) -> Retry {
        let row = self.letter().row();
        match self.phase().effect() {
            Effect::Committed => Retry::Never,
            Effect::Nothing => match self.0.after_ms {
                Some(ms) => Retry::AfterMs(ms),
                None if row.never.contains(self.code()) => Retry::Never,
                None => row.retry,
            },
        }
    }
}

/// An exception that came from elsewhere.
impl From<Details> for Exception {
    fn from(details: Details) -> Self {
        Self(Box::new(details))
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)
    }
}

impl std::error::Error for Exception {}

/// A mistake in a field: A-INVALID.
impl From<FieldError> for Exception {
    fn from(field: FieldError) -> Self {
        Self::of_field(codes::INVALID, field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_letter_once_with_its_major_number() {
        let letters: Vec<_> = TABLE.iter().map(|it| (it.letter, it.major)).collect();
        let expected = [
            (Letter::A, 1),
            (Letter::N, 1),
            (Letter::B, 2),
            (Letter::X, 3),
            (Letter::D, 4),
            (Letter::C, 5),
            (Letter::O, 6),
            (Letter::S, 7),
        ];
        assert_eq!(letters, expected);
    }

    /// One with fields differs for business only, and what is wrong with a request stays so.
    #[test]
    fn the_table_says_the_status_of_exceptions_with_fields_and_what_is_never_repeated() {
        let text = |row: &Row| {
            let never: Vec<&str> = row.never.iter().map(Code::as_str).collect();
            let never = never.join(" ");
            format!("{:?} {:?} {:?} {never}", row.letter, row.status, row.status_of_fields)
        };
        let expected = [
            "A FailedPrecondition InvalidArgument A-INVALID A-SLOT A-TIME",
            "N NotFound NotFound ",
            "B Internal Internal ",
            "X Unavailable Unavailable X-QUOTA",
            "D FailedPrecondition FailedPrecondition ",
            "C Aborted Aborted ",
            "O Unavailable Unavailable ",
            "S PermissionDenied PermissionDenied ",
        ];
        assert_eq!(TABLE.iter().map(text).collect::<Vec<_>>(), expected);
        for code in codes::ALL {
            let row = code.letter().row();
            let bare = Exception::new(code.clone(), "it failed");
            let retry = if row.never.contains(code) { Retry::Never } else { row.retry };
            let own = row.status_of_codes.iter().find(|it| it.0 == *code).map(|it| it.1);
            let status_of = |by_letter| own.unwrap_or(by_letter);
            assert_eq!((bare.status(), bare.retry()), (status_of(row.status), retry), "{code}");
            let named = bare.with_field(FieldError::new("key", "is wrong"));
            assert_eq!(
                (named.status(), named.retry()),
                (status_of(row.status_of_fields), retry),
                "{code}"
            );
        }
    }

    #[test]
    fn what_exists_and_what_is_too_much_have_the_status_that_grpc_has_for_it() {
        let field = || FieldError::new("name", "is wrong");
        for (code, status) in [
            (codes::EXISTS, Status::AlreadyExists),
            (codes::LIMIT, Status::ResourceExhausted),
            (codes::QUOTA, Status::ResourceExhausted),
        ] {
            let bare = Exception::new(code.clone(), "no");
            assert_eq!(bare.status(), status, "{code}");
            assert_eq!(bare.with_field(field()).status(), status, "{code}");
        }
    }

    #[test]
    fn what_has_happened_is_never_told_as_if_to_ask_again_would_help() {
        for phase in Phase::ALL.into_iter().filter(|it| it.effect() == Effect::Committed) {
            for code in codes::ALL {
                let exception = Exception::new(code.clone(), "it failed").at(phase);
                assert_ne!(exception.status(), Status::Unavailable, "{code} {phase:?}");
                assert_eq!(exception.retry(), Retry::Never, "{code} {phase:?}");
            }
        }
    }

    #[test]
    fn what_is_right_in_a_while_is_no_invalid_argument_and_says_when() {
        let field = FieldError::new("operation_time", "is 1 ms ahead");
        let ahead = Exception::of_field(codes::TIME, field).after(2);
        assert_eq!(
            (ahead.status(), ahead.retry()),
            (Status::FailedPrecondition, Retry::AfterMs(2))
        );
    }

    #[test]
    fn a_refusal_outside_of_operations_names_its_call_and_has_not_begun() {
        let refused = Exception::new(codes::REFUSED, "no key").in_call("namespace.put");
        let told = refused.details();
        assert_eq!((&*told.operation, told.phase), ("namespace.put", Phase::Before));
        let raised = Exception::new(codes::REFUSED, "no key").in_operation("pay", 2);
        assert_eq!(raised.clone().in_call("namespace.put"), raised);
        let late = Exception::new(codes::STORED, "odd").at(Phase::Synchronisation).in_call("x");
        assert_eq!(late.phase(), Phase::Synchronisation);
    }

    #[test]
    fn only_contention_and_the_unexpected_start_a_new_attempt_and_only_before_the_commit() {
        for row in &TABLE {
            let expected = matches!(row.letter, Letter::C | Letter::X);
            assert_eq!(row.is_retried, expected, "{:?}", row.letter);
        }
        for phase in Phase::ALL {
            let exception = Exception::unexpected("DISK", "it failed").at(phase);
            assert_eq!(exception.is_retried(), phase.number() <= 2, "{phase:?}");
        }
    }

    #[test]
    fn what_does_not_exist_is_404_and_all_else_400() {
        for row in &TABLE {
            assert_eq!(row.http, if row.letter == Letter::N { 404 } else { 400 });
        }
    }

    #[test]
    fn every_code_of_the_store_parses_back_to_itself() {
        for code in codes::ALL {
            assert_eq!(Code::parse(code.as_str()).as_ref(), Ok(code));
        }
        for wrong in ["", "Z-WHAT", "a-small", "A\0", &"A".repeat(65)] {
            assert!(Code::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_gives_code_field_and_limit() {
        let field = crate::ItemName::keyed("L", &"k".repeat(300)).unwrap_err();
        let exception = Exception::from(field);
        assert_eq!(*exception.code(), codes::INVALID);
        assert_eq!(exception.status(), Status::InvalidArgument);
        let text = "A-INVALID: key is 300 bytes long; the limit is 255";
        assert_eq!(exception.to_string(), text);
        assert_eq!(exception.details().fields[0].field, "key");
    }
}
