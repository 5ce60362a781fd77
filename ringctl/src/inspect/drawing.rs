//! The ring as a drawing: a circle for few managers, a band for many. Slot 0 stands at the top,
//! slots grow clockwise. Each arc is drawn with the mark of the manager that owns it.

use super::join::{Partition, Ring};
use crate::output::Style;

/// Most managers whose labels find room around a circle.
const CIRCLE_MANAGERS_MAX: usize = 12;
const RADIUS_Y: f64 = 8.0;
/// Characters are about twice as high as wide.
const RADIUS_X: f64 = 17.0;
const CENTRE_X: f64 = 32.0;
const CENTRE_Y: f64 = 9.0;
/// Points of the circle that are drawn: more than it has characters.
const STEPS: u32 = 720;
const WIDTH: usize = 65;
const HEIGHT: usize = 19;

const ASCII_ARCS: [char; 12] = ['.', ':', '+', '=', 'x', '~', '%', '*', '-', '"', '^', ','];
const UNICODE_ARCS: [char; 12] = ['━', '░', '▒', '═', '▚', '┅', '▓', '╍', '▪', '▫', '◆', '◇'];
const COLOURS: [u8; 12] = [32, 33, 36, 35, 34, 31, 92, 93, 96, 95, 94, 91];

/// One character of the drawing, and the owner whose colour it has.
#[derive(Clone, Copy)]
struct Cell {
    mark: char,
    owner: Option<usize>,
}

const BLANK: Cell = Cell { mark: ' ', owner: None };

/// Draws the ring; ends with a line break.
pub fn draw(ring: &Ring, style: Style) -> String {
    if ring.partitions.is_empty() {
        return String::new();
    }
    if ring.partitions.len() <= CIRCLE_MANAGERS_MAX && usize::from(style.columns) >= WIDTH {
        circle(ring, style)
    } else {
        band(ring, style)
    }
}

/// Place of a manager among all: picks its mark and colour.
fn place_of(ring: &Ring, number: u32) -> usize {
    ring.managers.iter().position(|it| it.number == number).unwrap_or(0)
}

fn pick<T: Copy>(from: &[T; 12], place: usize) -> T {
    from.get(place % from.len()).copied().expect("an index below the length")
}

fn arc_mark(place: usize, style: Style) -> char {
    pick(if style.unicode { &UNICODE_ARCS } else { &ASCII_ARCS }, place)
}

fn painted(text: &str, place: Option<usize>, style: Style) -> String {
    match place {
        Some(place) if style.colour => format!("\x1b[{}m{text}\x1b[0m", pick(&COLOURS, place)),
        _ => text.to_owned(),
    }
}

fn partition_of(ring: &Ring, slot: u32) -> Option<&Partition> {
    let holds = |partition: &&Partition| {
        let offset = (slot + ring.slots - partition.first_slot) % ring.slots.max(1);
        offset < partition.slots
    };
    ring.partitions.iter().find(holds)
}

/// Column and line of a slot on an ellipse that is `grow` characters larger than the ring's.
fn position(slot: f64, slots: f64, grow: f64) -> (usize, usize) {
    let angle = slot / slots * std::f64::consts::TAU;
    let x = CENTRE_X + angle.sin() * (RADIUS_X + grow * 1.6);
    let y = CENTRE_Y - angle.cos() * (RADIUS_Y + grow * 0.7);
    (index(x, WIDTH), index(y, HEIGHT))
}

/// The nearest index in `[0, size)`.
fn index(at: f64, size: usize) -> usize {
    (0..size)
        .rev()
        .find(|it| u32::try_from(*it).is_ok_and(|it| f64::from(it) <= at + 0.5))
        .unwrap_or(0)
}

fn write(grid: &mut [Vec<Cell>], (x, y): (usize, usize), text: &str, owner: Option<usize>) {
    let Some(line) = grid.get_mut(y) else { return };
    for (offset, mark) in text.chars().enumerate() {
        if let Some(cell) = line.get_mut(x + offset) {
            *cell = Cell { mark, owner };
        }
    }
}

fn circle(ring: &Ring, style: Style) -> String {
    let mut grid = vec![vec![BLANK; WIDTH]; HEIGHT];
    let slots = f64::from(ring.slots);
    for step in 0..STEPS {
        // Between two numbers every point belongs to the next slot.
        let slot = (u64::from(step) * u64::from(ring.slots)).div_ceil(u64::from(STEPS));
        let slot = u32::try_from(slot).unwrap_or(0) % ring.slots.max(1);
        let Some(partition) = partition_of(ring, slot) else { continue };
        let owner = place_of(ring, partition.owner);
        let mark = arc_mark(owner, style).to_string();
        let at = position(f64::from(step), f64::from(STEPS), 0.0);
        write(&mut grid, at, &mark, Some(owner));
    }
    for partition in &ring.partitions {
        let place = place_of(ring, partition.number);
        let at = position(f64::from(partition.number), slots, 0.0);
        write(&mut grid, at, &point(ring, partition.number, style), Some(place));
        label(&mut grid, ring, partition, place);
    }
    let middle = format!("epoch {}", ring.epoch);
    let below = format!("{} slots", ring.slots);
    for (line, text) in [(CENTRE_Y - 1.0, &middle), (CENTRE_Y, &below)] {
        let x = index(CENTRE_X, WIDTH) - text.len() / 2;
        write(&mut grid, (x, index(line, HEIGHT)), text, None);
    }
    let mut lines = legend(ring, style);
    let drawn = grid.iter().map(|line| line_text(line, style));
    let mut text = String::new();
    for line in drawn {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.extend(lines.drain(..));
    text.push('\n');
    text
}

/// The mark of a manager on the ring: filled when it answers.
fn point(ring: &Ring, number: u32, style: Style) -> String {
    let answers = ring.managers.iter().any(|it| it.number == number && it.answers);
    let mark = match (style.unicode, answers) {
        (true, true) => '●',
        (true, false) => '○',
        (false, true) => 'O',
        (false, false) => '?',
    };
    mark.to_string()
}

fn label(grid: &mut [Vec<Cell>], ring: &Ring, partition: &Partition, place: usize) {
    let text = format!("{} {:.0}%", partition.number, partition.share * 100.0);
    let (x, y) = position(f64::from(partition.number), f64::from(ring.slots), 2.0);
    let centre = index(CENTRE_X, WIDTH);
    let start = if x + 2 < centre {
        x.saturating_sub(text.len())
    } else if x > centre + 2 {
        x
    } else {
        x.saturating_sub(text.len() / 2)
    };
    write(grid, (start.min(WIDTH - text.len()), y), &text, Some(place));
}

fn line_text(line: &[Cell], style: Style) -> String {
    let mut text = String::new();
    let mut run = String::new();
    let mut owner = None;
    for cell in line {
        if cell.owner != owner && !run.is_empty() {
            text.push_str(&painted(&run, owner, style));
            run.clear();
        }
        owner = cell.owner;
        run.push(cell.mark);
    }
    text + &painted(&run, owner, style)
}

/// Which mark belongs to which manager.
fn legend(ring: &Ring, style: Style) -> Vec<String> {
    let line = |(place, manager): (usize, &super::join::Manager)| {
        let owned = ring.partitions.iter().filter(|it| it.owner == manager.number);
        // The sum of nothing is -0.0, which would be printed so.
        let share = owned.map(|it| it.share).fold(0.0, |sum, it| sum + it);
        let mark = arc_mark(place, style).to_string().repeat(3);
        let mark = painted(&mark, Some(place), style);
        let (number, id, share) = (manager.number, &manager.id, share * 100.0);
        let note = match manager.answers {
            _ if manager.has_left() => ", has left",
            true => "",
            false => ", no answer",
        };
        format!("  {mark} {number} {id} owns {share:.1}%{note}\n")
    };
    ring.managers.iter().enumerate().map(line).collect()
}

/// One line per partition, each bar as long as its share.
fn band(ring: &Ring, style: Style) -> String {
    let room = f64::from(style.columns.saturating_sub(36).max(10));
    let largest = ring.partitions.iter().map(|it| it.share).fold(0.0, f64::max).max(f64::EPSILON);
    let mut text = String::new();
    for it in &ring.partitions {
        let owner = place_of(ring, it.owner);
        let length = index(it.share / largest * room, usize::from(style.columns)).max(1);
        let bar = painted(&arc_mark(owner, style).to_string().repeat(length), Some(owner), style);
        let point = point(ring, it.number, style);
        let slots = format!("{}..{}", it.first_slot, it.last_slot);
        let moved = if it.owner == it.home { String::new() } else { format!(" at {}", it.owner) };
        let share = it.share * 100.0;
        text.push_str(&format!("{slots:>12} {bar}{point} {} {share:.1}%{moved}\n", it.number));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::super::join::{join, tests::answers};
    use super::*;
    use rota_client::v1;

    #[test]
    fn a_small_ring_is_a_circle_of_ascii_when_nobody_can_show_more() {
        let text = draw(&join(&answers()).unwrap(), Style::PLAIN);
        assert!(text.is_ascii(), "{text}");
        for label in ["340 33%", "681 33%", "1022 33%", "epoch 5", "1024 slots"] {
            assert!(text.contains(label), "{label} is missing in\n{text}");
        }
        // Two managers answer and one does not; the second owns two thirds.
        assert_eq!(
            text.lines().take(HEIGHT).flat_map(str::chars).filter(|it| *it == 'O').count(),
            2
        );
        assert!(text.contains('?') && text.contains("681 m2 owns 66.7%"), "{text}");
        assert!(!text.contains("340 m1 owns 33"), "{text}");
    }

    #[test]
    fn colours_and_blocks_are_used_only_where_they_can_be_shown() {
        let ring = join(&answers()).unwrap();
        let text = draw(&ring, Style { unicode: true, colour: true, columns: 100 });
        assert!(text.contains('●') && text.contains("\x1b[33m"), "{text}");
        let plain = draw(&ring, Style { unicode: true, colour: false, columns: 100 });
        assert!(!plain.contains('\x1b'));
    }

    #[test]
    fn a_large_ring_is_a_band_with_a_line_per_partition() {
        let manager = |number| v1::ManagerEntry { number, ..Default::default() };
        let part = |number: u32| v1::Part {
            number,
            first_slot: if number == 9 { 990 } else { number - 19 },
            owner: number,
            isr: vec![number],
            ..Default::default()
        };
        let numbers: Vec<u32> = (0..50).map(|it| 9 + it * 20).collect();
        let view = v1::View {
            m: 1000,
            managers: numbers.iter().map(|it| manager(*it)).collect(),
            parts: numbers.iter().map(|it| part(*it)).collect(),
            ..Default::default()
        };
        let answer = v1::InspectResponse { number: 9, view: Some(view), ..Default::default() };
        let ring = join(&[(9, Ok(answer))].into()).unwrap();
        let text = draw(&ring, Style::PLAIN);
        assert_eq!(text.lines().count(), 51);
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn the_arcs_of_a_ring_of_few_slots_are_whole() {
        let mut ring = join(&answers()).unwrap();
        ring.slots = 3;
        for (number, it) in (0..).zip(&mut ring.partitions) {
            (it.number, it.first_slot, it.last_slot, it.slots) = (number, number, number, 1);
        }
        let text = draw(&ring, Style::PLAIN);
        let marks = text.lines().take(HEIGHT).flat_map(str::chars);
        assert!(marks.filter(|it| ASCII_ARCS.contains(it)).count() > 60, "{text}");
    }

    #[test]
    fn every_slot_lies_in_one_partition() {
        let ring = join(&answers()).unwrap();
        let of = |slot| partition_of(&ring, slot).unwrap().number;
        let seen = [of(0), of(340), of(341), of(681), of(682), of(1022), of(1023)];
        assert_eq!(seen, [340, 340, 681, 681, 1022, 1022, 340]);
    }
}
