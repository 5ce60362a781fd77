//! A manager with a search of its own: the shops within some kilometres of a point, which no filter can say. It takes the
//! options of `rota-manager`:
//!
//! ```text
//! mkdir bin && ln -s $PWD/target/release/examples/nearby bin/rota-manager
//! ROTA_BIN_DIR=$PWD/bin ringctl dev
//! ringctl document operate default/{1}tea document.write '{"changes": [{"class": "Shop", "docid": "{1}tea",
//!     "life": "ensure", "put": [{"class": "At", "json": {"lat": 52.23, "lon": 21.01}}]}]}'
//! ringctl document search default/Shop --item At --items --special near \
//!     --parameters '{"lat": 52.2, "lon": 21, "km": 10}'
//! ```
//!
//! The index gives the shops between two latitudes, and the distance of each is computed from its document.

use rota_docstore::{Content, Document, FieldError, FieldType};
use rota_manager::Application;
use rota_protocol::operate;
use rota_search::{Number, Place, SpecialSearch, SpecialSearches, Test, Value, View};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::process::ExitCode;

const CLASS: &str = "Shop";
/// The singleton that says where a shop is.
const ITEM: &str = "At";
const LATITUDE: &str = "lat";
const LONGITUDE: &str = "lon";

const EARTH_KM: f64 = 6_371.0;
const KM_MAX: f64 = 1_000.0;

/// Where something is, in degrees.
#[derive(Deserialize, Clone, Copy)]
struct Point {
    lat: f64,
    lon: f64,
}

impl Point {
    fn km_to(self, other: Self) -> f64 {
        let [lat, lon, other_lat, other_lon] =
            [self.lat, self.lon, other.lat, other.lon].map(f64::to_radians);
        let half = |it: f64| (it / 2.0).sin().powi(2);
        let chord = half(other_lat - lat) + lat.cos() * other_lat.cos() * half(other_lon - lon);
        2.0 * EARTH_KM * chord.sqrt().min(1.0).asin()
    }
}

/// Shops within so many kilometres.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Near {
    lat: f64,
    lon: f64,
    km: f64,
}

impl Near {
    fn is_near(&self, shop: &Document) -> bool {
        let Some(Content::Json(text)) = shop.content(ITEM, None) else { return false };
        let here = Point { lat: self.lat, lon: self.lon };
        text.read::<Point>().is_ok_and(|it| here.km_to(it) <= self.km)
    }
}

impl SpecialSearch for Near {
    const NAME: &'static str = "near";
    const CLASS: &'static str = CLASS;
    const ITEM: Option<&'static str> = Some(ITEM);
    type Parameters = Self;

    fn new(it: Self) -> Result<Self, FieldError> {
        let ranges = [("lat", it.lat, 90.0), ("lon", it.lon, 180.0)];
        for (field, value, most) in ranges {
            if value.abs() > most {
                let problem = format!("is {value}, and must be -{most} to {most} degrees");
                return Err(FieldError::new(field, problem));
            }
        }
        if !(0.0..=KM_MAX).contains(&it.km) {
            let problem = format!("is {}, and must be 0 to {KM_MAX}", it.km);
            return Err(FieldError::new("km", problem));
        }
        Ok(it)
    }

    fn places(&self, view: &View<'_>) -> Result<BTreeSet<Place>, FieldError> {
        // A little more than enough: the distance decides.
        let degrees = (self.km / EARTH_KM).to_degrees() + 1e-6;
        let end = |at: f64| {
            Number::new(at).map_or(Bound::Unbounded, |it| Bound::Included(Value::Number(it)))
        };
        let band = Test::Within(end(self.lat - degrees), end(self.lat + degrees));
        let in_band = view.places(ITEM, LATITUDE, &band)?.map(|it| it.1);
        let is_near = |it: &&Place| view.document(&it.name).is_some_and(|shop| self.is_near(&shop));
        Ok(in_band.filter(is_near).cloned().collect())
    }
}

fn main() -> ExitCode {
    let schema = operate::schema().class(CLASS, |items| {
        let items = items.any().field(ITEM, LATITUDE, FieldType::Double);
        items.field(ITEM, LONGITUDE, FieldType::Double)
    });
    match Application::new(operate::operations(), schema) {
        Ok(application) => {
            rota_manager::main(application.searched_by(SpecialSearches::new().with::<Near>()))
        }
        Err(mistake) => {
            eprintln!("{mistake}");
            ExitCode::FAILURE
        }
    }
}
