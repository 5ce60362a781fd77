//! The file of `ringctl apply`.

use rota_model::{PoolName, PoolSettings};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The only table at the top.
const POOL: &str = "pool";

/// The pools of a file.
pub type Wanted = BTreeMap<PoolName, PoolSettings>;

/// The pools that a text describes, or every mistake in it.
pub fn read(text: &str) -> Result<Wanted, Vec<String>> {
    let mut top: Table = toml::from_str(text).map_err(|error| vec![error.to_string()])?;
    let of_pools = top.remove(POOL).unwrap_or_else(|| Table::new().into());
    let strange = top.keys();
    let strange =
        strange.map(|it| format!("{it} is not known; there are tables [{POOL}.NAME] only"));
    let mut wrong: Vec<String> = strange.collect();
    let mut pools = Wanted::new();
    if let Value::Table(of_pools) = of_pools {
        for (name, value) in of_pools {
            match pool(&name, value) {
                Ok((name, settings)) => drop(pools.insert(name, settings)),
                Err(it) => wrong.extend(it.iter().map(|it| format!("pool {name}: {it}"))),
            }
        }
    } else {
        wrong.push(format!("{POOL} is no table; pools are written [{POOL}.NAME]"));
    }
    if wrong.is_empty() { Ok(pools) } else { Err(wrong) }
}

fn pool(name: &str, value: Value) -> Result<(PoolName, PoolSettings), Vec<String>> {
    let Value::Table(table) = value else {
        return Err(vec![format!("is no table; it is written [{POOL}.NAME]")]);
    };
    let named = PoolName::parse_new(name);
    let of_name = named.as_ref().err().map(|it| format!("its name {}", it.problem));
    let mut wrong: Vec<String> = of_name.into_iter().collect();
    // Each field is looked at alone, so that not only the first mistake is told.
    wrong.extend(table.iter().filter_map(|(field, value)| mistake(field, value)));
    let settings = table.try_into::<PoolSettings>();
    let together = settings.iter().flat_map(PoolSettings::mistakes);
    wrong.extend(together.map(|it| it.to_string()));
    match (named, settings) {
        (Ok(name), Ok(settings)) if wrong.is_empty() => Ok((name, settings)),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => Err(wrong),
    }
}

/// What is wrong with one field, whatever the others say.
fn mistake(field: &str, value: &Value) -> Option<String> {
    if !PoolSettings::FIELDS.contains(&field) {
        let known = PoolSettings::FIELDS.join(", ");
        return Some(format!("{field} is no field of a pool; there are {known}"));
    }
    let alone = Table::from_iter([(field.to_owned(), value.clone())]);
    let error = alone.try_into::<PoolSettings>().err()?;
    let told = error.message();
    // What names its place in a list begins with the field.
    let names_it = told.starts_with(&format!("{field}["));
    Some(if names_it { told.to_owned() } else { format!("{field}: {told}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        read(text).unwrap_err()
    }

    #[test]
    fn a_file_describes_pools_by_their_names() {
        let text = "[pool.small]\nprovisioner = \"process\"\nplaces = 10\nmax_nodes = 5\nload_limit = 1\n\
                    [pool.\"a b\"]\n";
        let pools = read(text).unwrap();
        let names: Vec<&str> = pools.keys().map(PoolName::as_str).collect();
        assert_eq!(names, ["a b", "small"]);
        let small = &pools[&PoolName::parse("small").unwrap()];
        assert_eq!((small.places, small.max_nodes, small.min_nodes), (10, 5, 0));
        assert_eq!(small.load_limit.unwrap().permille(), 1_000);
        assert!(read("").unwrap().is_empty());
    }

    #[test]
    fn all_mistakes_of_all_pools_are_told_together_with_pool_and_field() {
        let text = "title = 1\n[pools.x]\n[pool]\nodd = 3\n[pool.big]\nplaces = \"ten\"\nsize = 3\n\
                    policy = \"fast\"\nload_limit = 80\nnamespaces = [\"a/b\"]\n[pool.small]\nmin_nodes = 2\n\
                    [pool.\"\"]\nplaces = 1\n[pool.tide]\nprovisioner = \"process\"\nplaces = 1\nmax_nodes = 2\n\
                    schedules = [{ at = \"D0600\", min_nodes = 3 }]\n[pool.night]\n\
                    schedules = [{ at = \"D0600\", min_nodes = 1 }, { at = \"D2500\" }]\n";
        let known = "description, provisioner, places, load_limit, policy, min_nodes, max_nodes, \
                     warm_places, warm_nodes, scale_in_delay_s, scale_in_below, namespaces, labels, cpu_millis, memory_mib, schedules";
        let useless = "starts nothing without a provisioner: name one, or leave this out";
        assert_eq!(
            told(text),
            [
                "pools is not known; there are tables [pool.NAME] only".to_owned(),
                "title is not known; there are tables [pool.NAME] only".to_owned(),
                "pool : its name must not be empty".to_owned(),
                format!("pool : places {useless}"),
                "pool big: load_limit: is 80; it must be 0.001 to 1".to_owned(),
                "pool big: namespaces: namespace has a slash at byte 1".to_owned(),
                "pool big: places: invalid type: string \"ten\", expected u32".to_owned(),
                "pool big: policy: unknown variant `fast`, expected `pack` or `spread`".to_owned(),
                format!("pool big: size is no field of a pool; there are {known}"),
                "pool night: schedules[1].at column 2: the hour is 25; expected: hour of 2 digits, 00 to 23"
                    .to_owned(),
                "pool odd: is no table; it is written [pool.NAME]".to_owned(),
                "pool small: min_nodes is 2, and max_nodes is 0: it must not be above that"
                    .to_owned(),
                format!("pool small: min_nodes {useless}"),
                "pool tide: schedules[0].min_nodes is 3, and max_nodes is 2: it must not be above that"
                    .to_owned(),
            ]
        );
    }

    #[test]
    fn what_is_no_toml_or_no_table_is_told() {
        assert_eq!(told("pool = 3"), ["pool is no table; pools are written [pool.NAME]"]);
        let text = told("[pool.small]\nplaces 3\n").concat();
        assert!(text.contains("line 2"), "{text}");
        let text = told("[pool.a]\n[pool.a]\n").concat();
        assert!(text.contains("duplicate"), "{text}");
    }
}
