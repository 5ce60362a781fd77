//! What was found by trying Rota from the outside: each as a program that shows it.

#[cfg(test)]
mod work;
