//! Searches carts of a shop, and tells of it: `cargo run -p rota-search --example search`.

use rota_docstore::{Content, DocName, Exception, FieldType, ItemName, Rules, Schema, Store};
use rota_model::{Namespace, Stamp};
use rota_search::{DOCID, Filter, Index, Limits, Query, Search, Shapes, Sort, Wanted};
use std::error::Error;
use std::sync::Arc;

fn schema() -> Schema {
    Schema::new().class("Cart", |class| {
        class
            .any()
            .field("Line", "article", FieldType::String)
            .field("Line", "price", FieldType::Double)
            .field("Line", "tags", FieldType::Strings)
    })
}

struct Shop {
    rules: Rules,
    store: Store,
    index: Index,
    space: Namespace,
    now: Stamp,
}

impl Shop {
    fn put(&mut self, docid: &str, key: &str, json: &str) -> Result<(), Exception> {
        let name = DocName::new(&self.space, "Cart", docid)?;
        let (item, content) = (ItemName::keyed("Line", key)?, Content::json(json)?);
        let commit = self.store.change(&self.rules, &self.space, self.now, |transaction| {
            let edited = transaction.current(&name)?;
            edited.ensure();
            edited.put_content(&item, content)
        })?;
        // The index is told of every write of a commit.
        for write in &commit.writes {
            self.index.change(write.before.as_deref(), write.after.as_deref());
        }
        Ok(())
    }

    fn show(&self, text: &str, sort: Option<&str>) -> Result<(), Box<dyn Error>> {
        let shapes = self.index.shapes();
        let query = Query {
            class: "Cart".into(),
            item: Some("Line".into()),
            space: Some(self.space.clone()),
            filter: Filter::parse(text, &shapes.fields("Cart", Some("Line"))?)?,
            sort: sort.map(|field| Sort { field: field.into(), descending: false }),
            wanted: Wanted::Items,
            special: None,
        };
        println!("\n{}", query.filter);
        let search = Search::new(query, shapes)?;
        let mut token: Option<String> = None;
        loop {
            let after = token.as_deref().map(|it| search.position(it)).transpose()?;
            let read = |name: &DocName| self.store.peek(name).cloned();
            let page =
                self.index.page(&search, after.as_ref(), self.now, Limits::new(2)?, &read)?;
            for hit in &page.hits {
                let (place, content) = (&hit.at.place, hit.content.as_ref());
                let key = place.key.as_deref().unwrap_or_default();
                let json = content.map(|it| format!("{it:?}")).unwrap_or_default();
                println!("  {} {key}: {json}", place.name.docid());
            }
            println!("  -- end of page, {} documents read", page.documents_read);
            token = page.next.map(|it| search.token(&it));
            if token.is_none() {
                return Ok(());
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let shapes = Arc::new(Shapes::of(&schema()));
    let mut shop = Shop {
        rules: Rules::new(schema()),
        store: Store::default(),
        index: Index::new(Arc::clone(&shapes)),
        space: Namespace::parse("shop")?,
        now: Stamp::parse(261_127_193_000_000)?,
    };
    shop.put("cart-1", "1", r#"{"article":"tea","price":4.5,"tags":["hot","leaf"]}"#)?;
    shop.put("cart-1", "2", r#"{"article":"mug","price":9,"tags":["hot"]}"#)?;
    shop.put("cart-2", "1", r#"{"article":"tea","price":3.2,"tags":["leaf"]}"#)?;
    shop.put("cart-3", "1", r#"{"article":"ice","price":2,"tags":["cold"]}"#)?;
    shop.put("cart-4", "1", r#"{"article":"tea","price":12,"tags":[]}"#)?;
    shop.show("article = tea", None)?;
    shop.show("tags = hot and price < 5", None)?;
    shop.show("price in [3, 10)", Some("price"))?;
    shop.show("docid >= cart-3", Some(DOCID))?;

    let wrong = shop.put("cart-5", "1", r#"{"article":"tea","price":"cheap"}"#);
    println!("\na wrong type: {}", wrong.expect_err("a text is no price"));
    let fields = shapes.fields("Cart", Some("Line"))?;
    for text in ["price < cheap", "article = tea or price < 3", "colour = red"] {
        println!("{text}: {}", Filter::parse(text, &fields).expect_err("it is wrong"));
    }
    println!("the index: {:?}, about {} bytes", shop.index.size(), shop.index.size().bytes());
    Ok(())
}
