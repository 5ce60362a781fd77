//! What trials from outside found: programs and callers that mean no good, or know no better.

#[cfg(test)]
mod sandbox;
