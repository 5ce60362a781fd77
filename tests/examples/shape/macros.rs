//! What stands in the parentheses of a macro call.

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Block, Expr, Macro, Pat, Stmt, Token};

/// The code in a macro call, if it reads as expressions, as `matches!` or as statements. Empty if
/// it reads as none of them.
pub fn body(call: &Macro) -> Vec<Stmt> {
    let list = Punctuated::<Expr, Token![,]>::parse_terminated;
    if let Ok(list) = call.parse_body_with(list) {
        return list.into_iter().map(statement).collect();
    }
    let text = || call.tokens.clone();
    matching.parse2(text()).or_else(|_| Block::parse_within.parse2(text())).unwrap_or_default()
}

fn statement(expression: Expr) -> Stmt {
    Stmt::Expr(expression, None)
}

/// A value, a pattern and perhaps a condition, as in `matches!`.
fn matching(input: ParseStream<'_>) -> syn::Result<Vec<Stmt>> {
    let mut found = vec![statement(input.parse()?)];
    input.parse::<Token![,]>()?;
    Pat::parse_multi_with_leading_vert(input)?;
    if input.parse::<Option<Token![if]>>()?.is_some() {
        found.push(statement(input.parse()?));
    }
    input.parse::<Option<Token![,]>>()?;
    Ok(found)
}

/// The paths of two or more segments in tokens, read without their grammar.
pub fn paths(tokens: TokenStream) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut path = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(word) => {
                if colons != 2 {
                    found.push(std::mem::take(&mut path));
                }
                path.push(word.to_string());
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            TokenTree::Punct(_) | TokenTree::Literal(_) => {
                found.push(std::mem::take(&mut path));
                colons = 0;
            }
            TokenTree::Group(group) => {
                found.push(std::mem::take(&mut path));
                colons = 0;
                found.extend(paths(group.stream()));
            }
        }
    }
    found.push(path);
    found.retain(|path| path.len() > 1);
    found
}
